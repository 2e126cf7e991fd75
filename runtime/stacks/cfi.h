// DWARF call frame information as .eh_frame holds it: which rules give a frame's caller.
//
// Three steps, each bounded by the bytes it was given and none of them trusting those bytes:
//   find_entry   .eh_frame_hdr's sorted table -> the FDE of a pc and its CIE, decoded
//   row_at       runs both instruction streams up to a pc -> the row of rules that holds there
//   (step, in frame_step.h, applies a row to registers and memory)
// A row's values are 32 bits: offsets fit, and an expression is named by its distance from the start of the section.
//
// zone: signal-safe
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/stacks/registers.h"

namespace penumbra::stacks {

// Bytes that may be read.
struct ByteRange {
  const std::uint8_t* begin = nullptr;
  const std::uint8_t* end = nullptr;

  bool contains(const std::uint8_t* p) const { return begin <= p && p < end; }
};

// One FDE with what it needs of its CIE.
struct CfiEntry {
  std::uintptr_t pc_begin = 0;
  std::uintptr_t pc_end = 0;
  std::uint64_t code_alignment = 1;
  std::int64_t data_alignment = -8;
  ByteRange initial;  // the CIE's instructions
  ByteRange program;  // the FDE's
  ByteRange section;  // .eh_frame's segment; expressions are named by their offset in it
  std::uint8_t pointer_encoding = 0;
  bool is_signal_frame = false;  // 'S': the pc of the frame outside is exact, not a return address
};

enum class RuleKind : std::uint8_t {
  kUnspecified,  // no instruction spoke of it: the register keeps its value if callees must keep it
  kUndefined,    // cannot be recovered; for the return address: the outermost frame
  kSame,
  kOffset,         // saved at CFA + value
  kValOffset,      // is CFA + value
  kRegister,       // is in register number `value`
  kExpression,     // saved where the expression says
  kValExpression,  // is what the expression says
};

struct RegisterRule {
  std::int32_t value = 0;
  RuleKind kind = RuleKind::kUnspecified;
};

struct CfiRow {
  bool cfa_is_expression = false;
  std::uint8_t cfa_register = 0;  // if no expression: CFA is this register plus cfa_value
  std::int32_t cfa_value = 0;     // else: the expression's offset in the section
  RegisterRule rules[kRegisters];
};

// Where a row begins and ends to hold; for tests that visit every row.
struct RowRange {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};

// The entry that covers `pc`. `header` is .eh_frame_hdr's bytes and `frame` the readable bytes that .eh_frame lies in
// (null: its start is taken from the header and reads end with `header`). False where no entry covers it, or where
// the tables make no sense. Scans linearly where there is no sorted table.
bool find_entry(ByteRange header, ByteRange frame, std::uintptr_t pc, CfiEntry& entry);
// Where .eh_frame starts according to its header; null if unreadable.
const std::uint8_t* eh_frame_of(ByteRange header);
// Decodes the record at `at` inside `frame`; false for a CIE, the terminator, or nonsense. `next` is set whenever the
// length made sense, so that a caller can walk all records.
bool decode_entry(ByteRange frame, const std::uint8_t* at, CfiEntry& entry, const std::uint8_t** next);

// The row for `pc`, which the entry must cover. False where the instructions make no sense.
bool row_at(const CfiEntry& entry, std::uintptr_t pc, CfiRow& row, RowRange* range = nullptr);

}  // namespace penumbra::stacks
