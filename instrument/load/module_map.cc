#include "instrument/load/module_map.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "runtime/base/os_linux.h"
#include "runtime/base/raw_memory.h"

namespace penumbra::load {
namespace {

bool table_fits(const ModuleHeader& header, const ModuleTable& table, std::size_t record_bytes) {
  return table.offset % 8 == 0 && table.offset <= header.file_bytes &&
         table.count <= (header.file_bytes - table.offset) / record_bytes;
}

bool patched_text_fits(const ModuleHeader& header) {
  const auto* ranges = reinterpret_cast<const ModuleTextRange*>(reinterpret_cast<const std::uint8_t*>(&header) +
                                                                header.text_ranges.offset);
  for (std::uint64_t n = 0; n < header.text_ranges.count; ++n) {
    const ModuleTextRange& range = ranges[n];
    const std::uint64_t within_page = (header.text_begin + range.text_offset) % kPageSize;
    if (range.bytes > header.file_bytes || range.patched_offset % kPageSize != 0 ||
        range.patched_offset > header.file_bytes - range.bytes - within_page) {
      return false;
    }
  }
  return true;
}

std::uint64_t checksum_of(const ModuleHeader* header) {
  const auto* words = reinterpret_cast<const std::uint64_t*>(header);
  std::uint64_t sum = 0;
  for (std::size_t n = offsetof(ModuleHeader, checksum) / 8 + 1; n < header->file_bytes / 8; ++n) {
    sum = module_checksum_step(sum, words[n]);
  }
  return sum;
}

bool same_text(const char* a, const char* b) {
  const std::size_t length = raw_length(a);
  return length == raw_length(b) && raw_compare(a, b, length) == 0;
}

MapVerdict judge(const ModuleHeader& header, std::size_t bytes, std::uint64_t changed_at, const char* identity) {
  if (bytes < kPageSize || raw_compare(header.magic, kModuleMagic, sizeof header.magic) != 0)
    return MapVerdict::kDamaged;
  if (header.version != kModuleVersion || header.header_bytes != sizeof header) return MapVerdict::kOtherVersion;
  if (header.file_bytes != bytes || bytes % 8 != 0) return MapVerdict::kDamaged;
  if (header.identity[sizeof header.identity - 1] != '\0' || !same_text(header.identity, identity)) {
    return MapVerdict::kOtherModule;
  }
  const bool fits = header.code_offset % kPageSize == 0 && header.code_bytes % kPageSize == 0 &&
                    header.code_offset <= bytes && header.code_bytes <= bytes - header.code_offset &&
                    table_fits(header, header.text_ranges, sizeof(ModuleTextRange)) &&
                    table_fits(header, header.patches, sizeof(ModulePatch)) &&
                    table_fits(header, header.checks, sizeof(ModuleCheck)) &&
                    table_fits(header, header.accesses, sizeof(ModuleAccess)) &&
                    table_fits(header, header.places, sizeof(ModulePlace)) &&
                    table_fits(header, header.states, sizeof(ModuleState)) &&
                    table_fits(header, header.links, sizeof(std::uint32_t)) &&
                    table_fits(header, header.table_operands, sizeof(std::uint32_t)) &&
                    table_fits(header, header.table_copies, sizeof(ModuleTableCopy)) &&
                    table_fits(header, header.redirects, sizeof(ModuleRedirect));
  if (!fits || !patched_text_fits(header)) return MapVerdict::kDamaged;
  if (header.complete_at != changed_at && header.checksum != checksum_of(&header)) return MapVerdict::kDamaged;
  return MapVerdict::kMapped;
}

}  // namespace

MapVerdict map_module(const char* path, const char* identity, ModuleMap& map) {
  const os::Result opened = os::open_read(path);
  if (!opened.ok()) return MapVerdict::kAbsent;
  map.fd = static_cast<int>(opened.value());
  os::FileFacts facts;
  if (!os::file_facts(map.fd, facts).ok() || !facts.is_ours_alone || facts.bytes == 0) {
    close_file(map);
    return MapVerdict::kNotOurs;
  }
  map.bytes = facts.bytes;
  const os::Result mapped = os::map_file_read_only(round_up(map.bytes, kPageSize), map.fd);
  if (!mapped.ok()) {
    close_file(map);
    return MapVerdict::kAbsent;
  }
  map.header = mapped.address().ptr<const ModuleHeader>();
  const MapVerdict verdict = judge(*map.header, map.bytes, facts.changed_at, identity);
  if (verdict != MapVerdict::kMapped) {
    unmap_module(map);
    close_file(map);
  }
  return verdict;
}

void close_file(ModuleMap& map) {
  if (map.fd >= 0) os::close(map.fd).ignore();
  map.fd = -1;
}

void unmap_module(ModuleMap& map) {
  os::unmap(AppAddr(map.header), round_up(map.bytes, kPageSize)).ignore();
  map.header = nullptr;
}

}  // namespace penumbra::load
