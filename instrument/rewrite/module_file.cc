#include "instrument/rewrite/module_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <span>
#include <system_error>

namespace penumbra::rewrite {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

bool has_pages_of_its_own(const Segment& segment, const ElfImage& image) {
  const auto first_page = [](const Segment& s) { return round_down(s.address, kPageSize); };
  const auto end_page = [](const Segment& s) { return round_up(s.end(), kPageSize); };
  if (segment.is_writable || segment.memory_bytes != segment.bytes.size() || image.pages_of(segment).empty())
    return false;
  return std::ranges::all_of(image.segments(), [&](const Segment& other) {
    return &other == &segment || end_page(other) <= first_page(segment) || first_page(other) >= end_page(segment);
  });
}

// Takes the file's bytes from begin to end, and sums and writes them.
class Sink {
 public:
  explicit Sink(int fd) : fd_(fd) { buffer_.reserve(kBufferBytes); }

  std::uint64_t position() const { return written_ + buffer_.size(); }
  bool is_good() const { return is_good_; }
  // Of all that was put behind the checksum's own field. After flush().
  std::uint64_t checksum() const { return checksum_; }

  void put(std::span<const std::uint8_t> bytes) {
    while (!bytes.empty()) {
      const std::size_t part = std::min(bytes.size(), kBufferBytes - buffer_.size());
      buffer_.insert(buffer_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(part));
      bytes = bytes.subspan(part);
      if (buffer_.size() == kBufferBytes) flush();
    }
  }

  void pad_to(std::uint64_t position) {
    static constexpr std::array<std::uint8_t, kPageSize> kZeros{};
    while (this->position() < position) {
      put(std::span(kZeros).first(std::min<std::uint64_t>(position - this->position(), kZeros.size())));
    }
  }

  void flush() {
    constexpr std::size_t kSummed = offsetof(ModuleHeader, checksum) + sizeof(std::uint64_t);
    for (std::size_t at = written_ == 0 ? kSummed : 0; at < buffer_.size(); at += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, buffer_.data() + at, std::min<std::size_t>(8, buffer_.size() - at));
      checksum_ = module_checksum_step(checksum_, word);
    }
    std::size_t done = 0;
    while (is_good_ && done < buffer_.size()) {
      const ssize_t n = write(fd_, buffer_.data() + done, buffer_.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        is_good_ = false;
      } else {
        done += static_cast<std::size_t>(n);
      }
    }
    written_ += buffer_.size();
    buffer_.clear();
  }

 private:
  static constexpr std::size_t kBufferBytes = 64 << 10;  // whole words

  int fd_;
  std::vector<std::uint8_t> buffer_;
  std::uint64_t written_ = 0;
  std::uint64_t checksum_ = 0;
  bool is_good_ = true;
};

template <class Record>
std::span<const std::uint8_t> bytes_of(const std::vector<Record>& records) {
  return {reinterpret_cast<const std::uint8_t*>(records.data()), records.size() * sizeof(Record)};
}

// Where everything lies: the header, and the records that tell of the text.
struct Plan {
  ModuleHeader header{};
  std::vector<ModuleTextRange> ranges;
};

// The tables behind the code, in their order.
template <class Visit>
void for_each_table(ModuleHeader& header, const std::vector<ModuleTextRange>& ranges, const RewrittenModule& module,
                    const Visit& visit) {
  visit(header.text_ranges, ranges);
  visit(header.patches, module.patches);
  visit(header.checks, module.checks);
  visit(header.accesses, module.accesses);
  visit(header.links, module.links);
  visit(header.table_operands, module.table_operands);
  visit(header.table_copies, module.table_copies);
  visit(header.redirects, module.redirects);
  visit(header.places, module.places);
  visit(header.states, module.states);
}

Plan make_plan(const RewrittenModule& module, const ElfImage& image, const ModuleFileFacts& facts) {
  Plan plan;
  ModuleHeader& header = plan.header;
  std::memcpy(header.magic, kModuleMagic, sizeof header.magic);
  header.version = kModuleVersion;
  header.header_bytes = sizeof header;
  std::strncpy(header.identity, facts.identity.c_str(), sizeof header.identity - 1);
  header.options = facts.options;
  header.text_begin = module.text_begin;
  header.text_bytes = module.stats.text_bytes;
  header.area_address = module.area_address;
  header.code_offset = kPageSize;
  header.code_bytes = module.code.size();
  std::uint64_t end = header.code_offset + header.code_bytes;
  for (const Segment& segment : image.segments()) {
    if (!segment.is_executable) continue;
    plan.ranges.push_back({segment.address - module.text_begin, segment.bytes.size(), 0});
    if (!has_pages_of_its_own(segment, image)) continue;
    plan.ranges.back().patched_offset = end;
    end = round_up(end + image.pages_of(segment).size(), kPageSize);
  }
  for_each_table(header, plan.ranges, module, [&](ModuleTable& table, const auto& records) {
    end = round_up(end, 8);
    table = {end, records.size()};
    end += bytes_of(records).size();
  });
  header.file_bytes = round_up(end, 8);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  header.complete_at = static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
  return plan;
}

// As instrument/load/patch.cc writes them.
std::vector<std::uint8_t> patched_text(const Segment& segment, const RewrittenModule& module, const ElfImage& image) {
  const auto pages = image.pages_of(segment);
  std::vector<std::uint8_t> text(pages.begin(), pages.end());
  text.resize(round_up(text.size(), kPageSize));
  const std::uint64_t first = round_down(segment.address, kPageSize);
  const auto area = static_cast<std::uint64_t>(module.area_address);
  for (const ModulePatch& patch : module.patches) {
    const std::uint64_t address = module.text_begin + patch.text_offset;
    if (!segment.contains(address)) continue;
    std::uint8_t* const at = text.data() + (address - first);
    if (patch.kind == ModulePatch::kJump2) {
      at[0] = 0xeb;
      at[1] = static_cast<std::uint8_t>(patch.target - (patch.text_offset + 2));
      continue;
    }
    if (patch.kind == ModulePatch::kJump5) at[0] = 0xe9;
    const auto distance = static_cast<std::uint32_t>(area + patch.target - (address + 5));
    std::memcpy(at + 1, &distance, sizeof distance);
  }
  return text;
}

void put_all(Sink& sink, Plan& plan, const RewrittenModule& module, const ElfImage& image) {
  sink.put({reinterpret_cast<const std::uint8_t*>(&plan.header), sizeof plan.header});
  sink.pad_to(plan.header.code_offset);
  sink.put(module.code);
  auto range = plan.ranges.begin();
  for (const Segment& segment : image.segments()) {
    if (segment.is_executable && range++->patched_offset != 0) sink.put(patched_text(segment, module, image));
  }
  for_each_table(plan.header, plan.ranges, module, [&](const ModuleTable& table, const auto& records) {
    sink.pad_to(table.offset);
    sink.put(bytes_of(records));
  });
  sink.pad_to(plan.header.file_bytes);
  sink.flush();
}

// All of it on disk, then the time at which a reader believes it without summing.
bool write_and_complete(int fd, Plan& plan, const RewrittenModule& module, const ElfImage& image) {
  Sink sink(fd);
  put_all(sink, plan, module, image);
  const std::uint64_t checksum = sink.checksum();
  if (!sink.is_good() ||
      pwrite(fd, &checksum, sizeof checksum, offsetof(ModuleHeader, checksum)) != sizeof checksum ||
      fdatasync(fd) != 0) {
    return false;
  }
  const timespec at{static_cast<time_t>(plan.header.complete_at / 1'000'000'000),
                    static_cast<long>(plan.header.complete_at % 1'000'000'000)};
  const timespec times[2] = {at, at};
  return futimens(fd, times) == 0;
}

}  // namespace

std::uint64_t module_file_bytes(const RewrittenModule& module, const ElfImage& image) {
  return make_plan(module, image, {}).header.file_bytes;
}

void write_module_file(const std::string& path, const RewrittenModule& module, const ElfImage& image,
                       const ModuleFileFacts& facts) {
  Plan plan = make_plan(module, image, facts);
  std::string temporary = path + ".XXXXXX";
  const int fd = mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) fail("cannot create " + temporary);
  const auto give_up = [&](const std::string& what) {
    const int error = errno;
    unlink(temporary.c_str());
    errno = error;
    fail(what);
  };
  if (!write_and_complete(fd, plan, module, image)) {
    const int error = errno;
    close(fd);
    errno = error;
    give_up("cannot write " + temporary);
  }
  if (close(fd) != 0 || std::rename(temporary.c_str(), path.c_str()) != 0) give_up("cannot rename to " + path);
}

}  // namespace penumbra::rewrite
