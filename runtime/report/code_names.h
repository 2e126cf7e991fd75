// Code addresses and what they are called: the frames of a report, each named once.
//
// An address gets its names in two steps. The process itself knows module, offset, build-id and the dynamic symbol
// (or the function's bounds by the unwind table): name_locally(). The helper process may know more: the static
// symbol, the demangled name, file and line, inlined functions (symbolizer.h). Both write into a NameTable, whose
// texts live in its own pool: nothing is allocated, and what does not fit is left out.
//
// I1  `function` of a named frame is never null and is a symbol as the linker knows it (mangled), or `sub_<offset>`
//     for a function without one: both syzkaller and ClusterFuzz take letters, digits and underscores only.
//
// zone: signal-safe
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "runtime/base/config.h"
#include "runtime/base/text_buffer.h"
#include "runtime/report/modules.h"

namespace penumbra::report {

// One function at a place in the source, of the chain of inlined ones.
struct SourceFrame {
  const char* function = nullptr;  // demangled where that differs, else as in the symbol; may be null
  const char* file = nullptr;      // null where unknown
  std::uint32_t line = 0;
};

inline constexpr std::size_t kMaxSourceFrames = 4;

struct CodeName {
  std::uintptr_t pc = 0;
  bool is_return_address = false;
  const char* function = nullptr;
  std::uintptr_t offset = 0;   // of pc in the function
  std::size_t bytes = 0;       // of the function; 0 where unknown
  const char* near = nullptr;  // a symbol before the function that does not cover it, where that is all there is
  std::uintptr_t near_offset = 0;
  const char* module = nullptr;  // base name; null outside modules
  const char* module_path = nullptr;
  std::uintptr_t module_offset = 0;  // address in the file's own terms
  const char* build_id = nullptr;    // hex; null where the file has none
  bool module_is_loaded = false;
  std::size_t source_count = 0;                        // 0 where the helper knew nothing
  std::array<SourceFrame, kMaxSourceFrames> source{};  // innermost first; the last one is the function itself
};

class NameTable {
 public:
  // An access, an allocation and a free stack, and a few addresses more.
  static constexpr std::size_t kCapacity = 3 * kMaxStackFrames + 8;

  void clear();
  // The name of pc, made on first use by name_locally(). Null when the table is full.
  CodeName* add(std::uintptr_t pc, bool is_return_address);
  const CodeName* find(std::uintptr_t pc) const;
  std::size_t count() const { return count_; }
  CodeName& operator[](std::size_t i) { return names_[i]; }

  // Keeps a text as long as the table is not cleared; null when the pool is full.
  const char* keep(const char* text, std::size_t length);

 private:
  void name_locally(CodeName& name);

  std::array<CodeName, kCapacity> names_{};
  std::size_t count_ = 0;
  std::array<char, 64 << 10> pool_{};
  std::size_t pool_used_ = 0;
};

// Letters, digits, underscores, and the dots of compiler suffixes (`.isra.0`): what parsers of reports accept.
bool is_plain_symbol(const char* name);

// "main+0x1b/0x80 [prog]", as the kernel's %pS; an address outside modules is 0x1234.
void append_place(TextBuffer& out, const CodeName& name);
// One line of a stack: " [<000055d0a1b2c3d4>] main+0x1b/0x80 [prog] main src/prog.c:12", or, where there is no
// line, the offset in the module and its build-id. Inlined functions follow, a line each.
void append_frame(TextBuffer& out, const CodeName& name);

}  // namespace penumbra::report
