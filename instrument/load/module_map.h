// A module file, mapped and believed: or not, with the reason.
//
// A file is believed when it belongs to this process's user and nobody else can write it, and when its header, every
// table's bounds and the identity of the module agree; and the checksum, unless the file has not changed since its writer
// saw all of it on disk (complete_at). The mapping is private and read-only and stays for as long as the module does.
//
// zone: nomalloc
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/module_format.h"

namespace penumbra::load {

// A table inside a mapped module file.
template <class Record>
struct Records {
  const Record* first = nullptr;
  std::size_t count = 0;

  const Record& operator[](std::size_t i) const { return first[i]; }
  const Record* begin() const { return first; }
  const Record* end() const { return first + count; }
};

struct ModuleMap {
  const ModuleHeader* header = nullptr;
  std::size_t bytes = 0;
  int fd = -1;  // open only between map_module() and close_file()

  template <class Record>
  Records<Record> records(const ModuleTable& table) const {
    return {reinterpret_cast<const Record*>(reinterpret_cast<const std::uint8_t*>(header) + table.offset),
            table.count};
  }

  Records<ModuleTextRange> text_ranges() const { return records<ModuleTextRange>(header->text_ranges); }

  Records<ModulePatch> patches() const { return records<ModulePatch>(header->patches); }
  Records<ModuleCheck> checks() const { return records<ModuleCheck>(header->checks); }
  Records<ModuleAccess> accesses() const { return records<ModuleAccess>(header->accesses); }
  Records<ModulePlace> places() const { return records<ModulePlace>(header->places); }
  Records<ModuleState> states() const { return records<ModuleState>(header->states); }
  Records<std::uint32_t> links() const { return records<std::uint32_t>(header->links); }
  Records<std::uint32_t> table_operands() const { return records<std::uint32_t>(header->table_operands); }
  Records<ModuleTableCopy> table_copies() const { return records<ModuleTableCopy>(header->table_copies); }
  Records<ModuleRedirect> redirects() const { return records<ModuleRedirect>(header->redirects); }
};

enum class MapVerdict : std::uint8_t {
  kMapped,
  kAbsent,
  kNotOurs,  // somebody else may have written it, or it only says that the module cannot be rewritten
  kDamaged,
  kOtherVersion,
  kOtherModule
};

// `identity` is the module's build-id in hexadecimal, or the key of its contents. On anything but kMapped nothing stays mapped or open.
MapVerdict map_module(const char* path, const char* identity, ModuleMap& map);
void close_file(ModuleMap& map);
void unmap_module(ModuleMap& map);

}  // namespace penumbra::load
