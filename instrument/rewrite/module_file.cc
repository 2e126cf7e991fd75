#include "instrument/rewrite/module_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <system_error>

namespace penumbra::rewrite {
namespace {

template <class Record>
ModuleTable append_table(std::vector<std::uint8_t>& file, const std::vector<Record>& records) {
  file.resize(round_up(file.size(), 8));
  const ModuleTable table{file.size(), records.size()};
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(records.data());
  file.insert(file.end(), bytes, bytes + records.size() * sizeof(Record));
  return table;
}

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

std::uint64_t checksum_of(const std::vector<std::uint8_t>& file) {
  std::uint64_t sum = 0;
  for (std::size_t at = offsetof(ModuleHeader, checksum) + sizeof(std::uint64_t); at < file.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, file.data() + at, std::min<std::size_t>(8, file.size() - at));
    sum = module_checksum_step(sum, word);
  }
  return sum;
}

namespace {

bool has_pages_of_its_own(const Segment& segment, const ElfImage& image) {
  const auto first_page = [](const Segment& s) { return round_down(s.address, kPageSize); };
  const auto end_page = [](const Segment& s) { return round_up(s.end(), kPageSize); };
  if (segment.is_writable || segment.memory_bytes != segment.bytes.size() || image.pages_of(segment).empty())
    return false;
  return std::ranges::all_of(image.segments(), [&](const Segment& other) {
    return &other == &segment || end_page(other) <= first_page(segment) || first_page(other) >= end_page(segment);
  });
}

// As instrument/load/patch.cc writes them.
void append_patched_text(std::vector<std::uint8_t>& file, const Segment& segment, const RewrittenModule& module,
                         const Program& program) {
  const std::size_t begin = file.size();
  const auto pages = program.image().pages_of(segment);
  file.insert(file.end(), pages.begin(), pages.end());
  file.resize(round_up(file.size(), kPageSize));
  const std::uint64_t first = round_down(segment.address, kPageSize);
  const auto area = static_cast<std::uint64_t>(module.area_address);
  for (const ModulePatch& patch : module.patches) {
    const std::uint64_t address = program.text_begin() + patch.text_offset;
    if (!segment.contains(address)) continue;
    std::uint8_t* const at = file.data() + begin + (address - first);
    if (patch.kind == ModulePatch::kJump2) {
      at[0] = 0xeb;
      at[1] = static_cast<std::uint8_t>(patch.target - (patch.text_offset + 2));
      continue;
    }
    if (patch.kind == ModulePatch::kJump5) at[0] = 0xe9;
    const auto distance = static_cast<std::uint32_t>(area + patch.target - (address + 5));
    std::memcpy(at + 1, &distance, sizeof distance);
  }
}

}  // namespace

std::vector<std::uint8_t> module_bytes(const RewrittenModule& module, const Program& program,
                                       const std::string& identity, std::uint64_t options) {
  ModuleHeader header{};
  std::memcpy(header.magic, kModuleMagic, sizeof header.magic);
  header.version = kModuleVersion;
  header.header_bytes = sizeof header;
  std::strncpy(header.identity, identity.c_str(), sizeof header.identity - 1);
  header.options = options;
  header.text_begin = program.text_begin();
  header.text_bytes = program.text_end() - program.text_begin();
  header.area_address = module.area_address;
  header.code_offset = kPageSize;
  header.code_bytes = module.code.size();
  std::vector<std::uint8_t> file(header.code_offset + module.code.size());
  std::ranges::copy(module.code, file.begin() + static_cast<std::ptrdiff_t>(header.code_offset));
  std::vector<ModuleTextRange> ranges;
  for (const Segment& segment : program.image().segments()) {
    if (!segment.is_executable) continue;
    ranges.push_back({segment.address - program.text_begin(), segment.bytes.size(), 0});
    if (!has_pages_of_its_own(segment, program.image())) continue;
    ranges.back().patched_offset = file.size();
    append_patched_text(file, segment, module, program);
  }
  header.text_ranges = append_table(file, ranges);
  header.patches = append_table(file, module.patches);
  header.checks = append_table(file, module.checks);
  header.accesses = append_table(file, module.accesses);
  header.links = append_table(file, module.links);
  header.table_operands = append_table(file, module.table_operands);
  header.table_copies = append_table(file, module.table_copies);
  header.redirects = append_table(file, module.redirects);
  header.places = append_table(file, module.places);
  header.states = append_table(file, module.states);
  file.resize(round_up(file.size(), 8));
  header.file_bytes = file.size();
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  header.complete_at = static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
  std::memcpy(file.data(), &header, sizeof header);
  header.checksum = checksum_of(file);
  std::memcpy(file.data(), &header, sizeof header);
  return file;
}

namespace {

// All of it on disk, then the time at which a reader believes it without summing.
bool write_and_complete(int fd, const std::vector<std::uint8_t>& bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = write(fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<std::size_t>(n);
  }
  if (fdatasync(fd) != 0) return false;
  ModuleHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  const timespec at{static_cast<time_t>(header.complete_at / 1'000'000'000),
                    static_cast<long>(header.complete_at % 1'000'000'000)};
  const timespec times[2] = {at, at};
  return futimens(fd, times) == 0;
}

}  // namespace

void write_module_file(const std::string& path, const std::vector<std::uint8_t>& bytes) {
  std::string temporary = path + ".XXXXXX";
  const int fd = mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) fail("cannot create " + temporary);
  const auto give_up = [&](const std::string& what) {
    const int error = errno;
    unlink(temporary.c_str());
    errno = error;
    fail(what);
  };
  if (!write_and_complete(fd, bytes)) {
    const int error = errno;
    close(fd);
    errno = error;
    give_up("cannot write " + temporary);
  }
  if (close(fd) != 0 || std::rename(temporary.c_str(), path.c_str()) != 0) give_up("cannot rename to " + path);
}

}  // namespace penumbra::rewrite
