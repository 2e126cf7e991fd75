// One ELF file with whatever debug information belongs to it, opened through elfutils' libdwfl.
//
// Addresses are the file's own (as in its program headers): the module is reported at bias 0.
// Compilation units are found through a table of their address ranges made here, once: .debug_aranges, which libdw
// relies on, is missing from everything that clang compiles.
//
// zone: hosted
#pragma once

#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/launcher/symbolize.h"

namespace penumbra::launcher {

class DebugModule {
 public:
  // A file that cannot be opened or is no ELF file makes a module that knows nothing.
  explicit DebugModule(const std::string& path);
  ~DebugModule();
  DebugModule(const DebugModule&) = delete;
  DebugModule& operator=(const DebugModule&) = delete;

  // Lower-case hex; empty where the file has none.
  const std::string& build_id() const { return build_id_; }
  std::vector<Frame> lookup(std::uint64_t address);

 private:
  struct UnitRange {
    std::uint64_t begin;
    std::uint64_t end;
    Dwarf_Off unit;  // offset of the compilation unit's DIE
  };

  void index_units();
  bool find_unit(std::uint64_t address, Dwarf_Die& unit);
  void add_source_frames(std::uint64_t address, std::vector<Frame>& frames);

  Dwfl* session_ = nullptr;
  Dwfl_Module* module_ = nullptr;
  std::string build_id_;
  Dwarf* dwarf_ = nullptr;
  Dwarf_Addr dwarf_bias_ = 0;
  bool is_indexed_ = false;
  std::vector<UnitRange> units_;  // by begin
};

}  // namespace penumbra::launcher
