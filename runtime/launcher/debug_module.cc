#include "runtime/launcher/debug_module.h"

#include <cxxabi.h>
#include <dwarf.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <memory>

namespace penumbra::launcher {
namespace {

// Where Debian keeps separate debug information; libdwfl looks below it by build-id and by debug link. The first
// entry is the folder of the file itself.
char g_debug_path[] = "+:.debug:/usr/lib/debug";
char* g_debug_path_pointer = g_debug_path;

constexpr Dwfl_Callbacks kCallbacks = {
    .find_elf = dwfl_build_id_find_elf,
    .find_debuginfo = dwfl_standard_find_debuginfo,
    .section_address = dwfl_offline_section_address,
    .debuginfo_path = &g_debug_path_pointer,
};

std::string demangle(const char* mangled) {
  if (mangled[0] != '_' || mangled[1] != 'Z') return "";
  int status = 0;
  const std::unique_ptr<char, decltype(&free)> text(abi::__cxa_demangle(mangled, nullptr, nullptr, &status), free);
  return status == 0 ? text.get() : "";
}

// The linkage name of a function, or its plain one, also where that stands at its declaration or inlined original.
const char* name_of(Dwarf_Die* function) {
  Dwarf_Attribute attribute;
  for (const unsigned kind : {DW_AT_linkage_name, DW_AT_MIPS_linkage_name, DW_AT_name}) {
    if (dwarf_attr_integrate(function, kind, &attribute) == nullptr) continue;
    if (const char* name = dwarf_formstring(&attribute)) return name;
  }
  return nullptr;
}

// A source file as people and editors like it: below the folder it was compiled in, without "build/../".
std::string readable_path(const char* file, const char* folder) {
  if (file == nullptr) return "";
  const std::filesystem::path path = folder == nullptr ? file : std::filesystem::path(folder) / file;
  return path.lexically_normal().string();
}

const char* compilation_folder(Dwarf_Die* unit) {
  Dwarf_Attribute attribute;
  return dwarf_attr(unit, DW_AT_comp_dir, &attribute) != nullptr ? dwarf_formstring(&attribute) : nullptr;
}

int call_line_of(Dwarf_Die* inlined) {
  Dwarf_Attribute attribute;
  Dwarf_Word line = 0;
  if (dwarf_formudata(dwarf_attr(inlined, DW_AT_call_line, &attribute), &line) != 0) return 0;
  return static_cast<int>(line);
}

const char* call_file_of(Dwarf_Die* inlined, Dwarf_Die* unit) {
  Dwarf_Attribute attribute;
  Dwarf_Word index = 0;
  Dwarf_Files* files = nullptr;
  std::size_t count = 0;
  if (dwarf_formudata(dwarf_attr(inlined, DW_AT_call_file, &attribute), &index) != 0) return nullptr;
  if (dwarf_getsrcfiles(unit, &files, &count) != 0 || index >= count) return nullptr;
  return dwarf_filesrc(files, index, nullptr, nullptr);
}

// Deeper nests of blocks than any compiler makes end the search in a damaged file.
constexpr int kDeepestScope = 200;

// Appends the functions below `scope` that hold `address`, from the outside in; true once one is found.
// Not dwarf_getscopes(): in elfutils 0.188 it gives up at the first entry whose ranges it cannot read, and clang's
// DWARF 5 has such entries for functions that the linker dropped.
bool collect_functions(Dwarf_Die* scope, std::uint64_t address, std::vector<Dwarf_Die>& functions, int depth) {
  Dwarf_Die child;
  if (depth > kDeepestScope || dwarf_child(scope, &child) != 0) return false;
  do {
    switch (dwarf_tag(&child)) {
      case DW_TAG_subprogram:
      case DW_TAG_inlined_subroutine:
        if (dwarf_haspc(&child, address) <= 0) break;
        functions.push_back(child);
        collect_functions(&child, address, functions, depth + 1);
        return true;
      case DW_TAG_lexical_block:
        if (dwarf_haspc(&child, address) <= 0) break;
        [[fallthrough]];
      case DW_TAG_namespace:
      case DW_TAG_class_type:
      case DW_TAG_structure_type:
        if (collect_functions(&child, address, functions, depth + 1)) return true;
        break;
      default: break;
    }
  } while (dwarf_siblingof(&child, &child) == 0);
  return false;
}

void set_name(Frame& frame, const char* mangled) {
  if (mangled == nullptr) return;
  frame.mangled = mangled;
  // glibc's own symbol table has `memcpy@@GLIBC_2.14`.
  if (const std::size_t version = frame.mangled.find('@'); version != std::string::npos && version > 0) {
    frame.mangled.erase(version);
  }
  frame.demangled = demangle(frame.mangled.c_str());
}

}  // namespace

DebugModule::DebugModule(const std::string& path) : session_(dwfl_begin(&kCallbacks)) {
  if (session_ == nullptr) return;
  dwfl_report_begin(session_);
  module_ = dwfl_report_elf(session_, path.c_str(), path.c_str(), -1, 0, true);
  dwfl_report_end(session_, nullptr, nullptr);
  if (module_ == nullptr) return;
  GElf_Addr bias = 0;
  if (dwfl_module_getelf(module_, &bias) == nullptr) return;  // reads the build-id as well
  const unsigned char* bits = nullptr;
  GElf_Addr where = 0;
  const int bytes = dwfl_module_build_id(module_, &bits, &where);
  for (int i = 0; i < bytes; ++i) {
    constexpr char kDigits[] = "0123456789abcdef";
    build_id_ += kDigits[bits[i] >> 4];
    build_id_ += kDigits[bits[i] & 15];
  }
}

DebugModule::~DebugModule() {
  if (session_ != nullptr) dwfl_end(session_);
}

void DebugModule::index_units() {
  is_indexed_ = true;
  dwarf_ = dwfl_module_getdwarf(module_, &dwarf_bias_);
  if (dwarf_ == nullptr) return;
  Dwarf_CU* unit = nullptr;
  Dwarf_Die die;
  std::uint8_t kind = 0;
  while (dwarf_get_units(dwarf_, unit, &unit, nullptr, &kind, &die, nullptr) == 0) {
    if (kind != DW_UT_compile && kind != DW_UT_skeleton) continue;
    Dwarf_Addr base = 0;
    Dwarf_Addr begin = 0;
    Dwarf_Addr end = 0;
    for (std::ptrdiff_t at = 0; (at = dwarf_ranges(&die, at, &base, &begin, &end)) > 0;) {
      if (begin < end) units_.push_back({begin, end, dwarf_dieoffset(&die)});
    }
  }
  std::sort(units_.begin(), units_.end(), [](const UnitRange& a, const UnitRange& b) { return a.begin < b.begin; });
}

bool DebugModule::find_unit(std::uint64_t address, Dwarf_Die& unit) {
  if (!is_indexed_) index_units();
  auto after = std::upper_bound(units_.begin(), units_.end(), address,
                                [](std::uint64_t a, const UnitRange& range) { return a < range.begin; });
  return after != units_.begin() && address < (--after)->end && dwarf_offdie(dwarf_, after->unit, &unit) != nullptr;
}

// The line table gives the place of the innermost function; each inlined function says where it was called, which is
// the place of the next one out.
void DebugModule::add_source_frames(std::uint64_t address, std::vector<Frame>& frames) {
  Dwarf_Die unit;
  if (!find_unit(address, unit)) return;
  const char* const folder = compilation_folder(&unit);
  Frame frame;
  if (Dwarf_Line* line = dwarf_getsrc_die(&unit, address)) {
    frame.file = readable_path(dwarf_linesrc(line, nullptr, nullptr), folder);
    dwarf_lineno(line, &frame.line);
  }
  std::vector<Dwarf_Die> functions;  // the real one, then what was inlined there, inwards
  collect_functions(&unit, address, functions, 0);
  for (auto function = functions.rbegin(); function != functions.rend(); ++function) {
    set_name(frame, name_of(&*function));
    frames.push_back(frame);
    frame = Frame{};
    frame.file = readable_path(call_file_of(&*function, &unit), folder);
    frame.line = call_line_of(&*function);
  }
  if (frames.empty() && (frame.line != 0 || !frame.file.empty())) frames.push_back(frame);
}

std::vector<Frame> DebugModule::lookup(std::uint64_t address) {
  std::vector<Frame> frames;
  if (module_ == nullptr) return frames;
  GElf_Sym symbol;
  GElf_Off offset = 0;
  const char* const name = dwfl_module_addrinfo(module_, address, &offset, &symbol, nullptr, nullptr, nullptr);
  if (!is_indexed_) index_units();
  add_source_frames(address - dwarf_bias_, frames);
  if (name == nullptr) return frames;
  if (frames.empty()) frames.emplace_back();
  // The symbol's name is the one that the linker, and every other tool, knows the outermost function by.
  set_name(frames.back(), name);
  for (Frame& frame : frames) {
    frame.symbol_offset = offset;
    frame.symbol_size = symbol.st_size;
  }
  return frames;
}

}  // namespace penumbra::launcher
