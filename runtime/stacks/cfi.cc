#include "runtime/stacks/cfi.h"

#include "runtime/stacks/byte_cursor.h"

namespace penumbra::stacks {
namespace {

std::uintptr_t as_number(const std::uint8_t* p) {
  return reinterpret_cast<std::uintptr_t>(p);
}

// The fixed start of a CIE or FDE: its length and what follows.
struct RecordHead {
  const std::uint8_t* id_at = nullptr;
  std::uint32_t id = 0;  // 0 in .eh_frame means CIE, else the distance back to the CIE
  ByteRange body;        // after the id
};

bool read_head(ByteRange frame, const std::uint8_t* at, RecordHead& head) {
  if (!frame.contains(at)) return false;
  ByteCursor cursor(at, frame.end);
  std::uint64_t length = cursor.fixed<std::uint32_t>();
  if (length == 0xffffffff) length = cursor.fixed<std::uint64_t>();
  if (!cursor.ok() || length < 4 || length > static_cast<std::uint64_t>(frame.end - cursor.at())) return false;
  head.id_at = cursor.at();
  head.body.end = cursor.at() + length;
  head.id = cursor.fixed<std::uint32_t>();
  head.body.begin = cursor.at();
  return true;
}

struct Cie {
  CfiEntry entry;  // alignments, instructions, encoding, signal flag
  bool has_augmentation_data = false;
};

// Version 1 (gcc, clang) and 3 differ in how the return register is written; 4 adds two bytes.
bool decode_cie(ByteRange frame, const std::uint8_t* at, Cie& cie) {
  RecordHead head;
  if (!read_head(frame, at, head) || head.id != 0) return false;
  ByteCursor cursor(head.body.begin, head.body.end);
  const std::uint8_t version = cursor.u8();
  if (version != 1 && version != 3 && version != 4) return false;
  const char* augmentation = cursor.text();
  if (augmentation == nullptr) return false;
  if (version == 4 && (cursor.u8() != 8 || cursor.u8() != 0)) return false;  // address size, segment size
  cie.entry.code_alignment = cursor.uleb();
  cie.entry.data_alignment = cursor.sleb();
  const std::uint64_t return_register = version == 1 ? cursor.u8() : cursor.uleb();
  if (return_register != kRip) return false;

  cie.entry.pointer_encoding = 0;
  cie.entry.is_signal_frame = false;
  cie.has_augmentation_data = false;
  const std::uint8_t* data_end = nullptr;
  bool is_known = true;
  for (const char* letter = augmentation; is_known && *letter != '\0'; ++letter) {
    switch (*letter) {
      case 'z': {
        if (letter != augmentation) return false;
        const std::uint64_t bytes = cursor.uleb();
        if (!cursor.ok() || bytes > static_cast<std::uint64_t>(head.body.end - cursor.at())) return false;
        data_end = cursor.at() + bytes;
        cie.has_augmentation_data = true;
        break;
      }
      case 'R': cie.entry.pointer_encoding = cursor.u8(); break;
      case 'L': cursor.u8(); break;
      case 'P': {
        const std::uint8_t encoding = cursor.u8();
        cursor.pointer(encoding, 0);
        break;
      }
      case 'S': cie.entry.is_signal_frame = true; break;
      case 'B': break;  // pointer authentication elsewhere; no data
      default:
        // Unknown data can be stepped over only where its length was given.
        if (data_end == nullptr) return false;
        is_known = false;
        break;
    }
  }
  if (data_end != nullptr) {
    if (data_end < cursor.at()) return false;
    cursor.skip(static_cast<std::uint64_t>(data_end - cursor.at()));
  }
  if (!cursor.ok()) return false;
  cie.entry.initial = {cursor.at(), head.body.end};
  return true;
}

// Executes call frame instructions.
class RowMachine {
 public:
  RowMachine(const CfiEntry& entry, CfiRow& row) : entry_(entry), row_(row) {}

  // Runs until the row that holds at `pc` is complete.
  bool run(ByteRange program, std::uintptr_t pc, bool is_initial, RowRange& range) {
    ByteCursor cursor(program.begin, program.end);
    while (!cursor.at_end()) {
      std::uintptr_t next = range.begin;
      if (!execute(cursor, next, is_initial)) return false;
      if (next == range.begin) continue;
      if (next > pc) {
        range.end = next < entry_.pc_end ? next : entry_.pc_end;
        return true;
      }
      if (next < range.begin) return false;
      range.begin = next;
    }
    range.end = entry_.pc_end;
    return cursor.ok();
  }

  void keep_initial() {
    for (unsigned r = 0; r < kRegisters; ++r) initial_[r] = row_.rules[r];
  }

 private:
  // Deepest nesting of DW_CFA_remember_state; compilers write 1 or 2.
  static constexpr unsigned kMaxRemembered = 6;

  bool execute(ByteCursor& cursor, std::uintptr_t& location, bool is_initial) {
    const std::uint8_t op = cursor.u8();
    switch (op & 0xc0) {
      case 0x40: location += (op & 0x3f) * entry_.code_alignment; return true;
      case 0x80: return set_scaled(op & 0x3f, RuleKind::kOffset, cursor.uleb());
      case 0xc0: return restore(op & 0x3f, is_initial);
      default: break;
    }
    switch (op) {
      case 0x00: return true;                                                                // nop
      case 0x01: location = cursor.pointer(entry_.pointer_encoding, 0); return cursor.ok();  // set_loc
      case 0x02: location += cursor.u8() * entry_.code_alignment; return true;
      case 0x03: location += cursor.fixed<std::uint16_t>() * entry_.code_alignment; return true;
      case 0x04: location += cursor.fixed<std::uint32_t>() * entry_.code_alignment; return true;
      case 0x1d: location += cursor.fixed<std::uint64_t>() * entry_.code_alignment; return true;
      case 0x05: {  // offset_extended
        const std::uint64_t r = cursor.uleb();
        return set_scaled(r, RuleKind::kOffset, cursor.uleb());
      }
      case 0x06: return restore(cursor.uleb(), is_initial);
      case 0x07: return set(cursor.uleb(), RuleKind::kUndefined, 0);
      case 0x08: return set(cursor.uleb(), RuleKind::kSame, 0);
      case 0x09: {  // register
        const std::uint64_t r = cursor.uleb();
        const std::uint64_t other = cursor.uleb();
        // Vector registers are not followed: a value kept there cannot be recovered.
        if (other >= kRegisters) return set(r, RuleKind::kUndefined, 0);
        return set(r, RuleKind::kRegister, static_cast<std::int64_t>(other));
      }
      case 0x0a:  // remember_state
        if (remembered_ == kMaxRemembered) return false;
        stack_[remembered_++] = row_;
        return true;
      case 0x0b:  // restore_state
        if (remembered_ == 0) return false;
        row_ = stack_[--remembered_];
        return true;
      case 0x0c: {  // def_cfa
        const std::uint64_t r = cursor.uleb();
        return set_cfa_register(r) && set_cfa_value(static_cast<std::int64_t>(cursor.uleb()));
      }
      case 0x0d: return set_cfa_register(cursor.uleb());
      case 0x0e: return !row_.cfa_is_expression && set_cfa_value(static_cast<std::int64_t>(cursor.uleb()));
      case 0x0f:  // def_cfa_expression
        row_.cfa_is_expression = true;
        return set_cfa_value(block(cursor));
      case 0x10: {  // expression
        const std::uint64_t r = cursor.uleb();
        return set(r, RuleKind::kExpression, block(cursor));
      }
      case 0x11: {  // offset_extended_sf
        const std::uint64_t r = cursor.uleb();
        return set_scaled(r, RuleKind::kOffset, static_cast<std::uint64_t>(cursor.sleb()));
      }
      case 0x12: {  // def_cfa_sf
        const std::uint64_t r = cursor.uleb();
        return set_cfa_register(r) && set_cfa_value(scaled(static_cast<std::uint64_t>(cursor.sleb())));
      }
      case 0x13:  // def_cfa_offset_sf
        return !row_.cfa_is_expression && set_cfa_value(scaled(static_cast<std::uint64_t>(cursor.sleb())));
      case 0x14: {  // val_offset
        const std::uint64_t r = cursor.uleb();
        return set_scaled(r, RuleKind::kValOffset, cursor.uleb());
      }
      case 0x15: {  // val_offset_sf
        const std::uint64_t r = cursor.uleb();
        return set_scaled(r, RuleKind::kValOffset, static_cast<std::uint64_t>(cursor.sleb()));
      }
      case 0x16: {  // val_expression
        const std::uint64_t r = cursor.uleb();
        return set(r, RuleKind::kValExpression, block(cursor));
      }
      case 0x2e: cursor.uleb(); return true;  // GNU_args_size: concerns landing pads only
      case 0x2f: {                            // GNU_negative_offset_extended
        const std::uint64_t r = cursor.uleb();
        return set_scaled(r, RuleKind::kOffset, 0 - cursor.uleb());
      }
      default: return false;
    }
  }

  std::int64_t scaled(std::uint64_t factored) const {
    return static_cast<std::int64_t>(factored * static_cast<std::uint64_t>(entry_.data_alignment));
  }

  bool set(std::uint64_t r, RuleKind kind, std::int64_t value) {
    if (value != static_cast<std::int32_t>(value)) return false;
    if (r < kRegisters) row_.rules[r] = {static_cast<std::int32_t>(value), kind};
    return true;
  }

  bool set_scaled(std::uint64_t r, RuleKind kind, std::uint64_t factored) { return set(r, kind, scaled(factored)); }

  bool restore(std::uint64_t r, bool is_initial) {
    if (is_initial) return false;
    if (r < kRegisters) row_.rules[r] = initial_[r];
    return true;
  }

  bool set_cfa_register(std::uint64_t r) {
    if (r >= kRegisters) return false;
    row_.cfa_is_expression = false;
    row_.cfa_register = static_cast<std::uint8_t>(r);
    return true;
  }

  bool set_cfa_value(std::int64_t value) {
    row_.cfa_value = static_cast<std::int32_t>(value);
    return value == row_.cfa_value;
  }

  // The place of a block (its length comes first) in the section.
  std::int64_t block(ByteCursor& cursor) {
    const std::uint8_t* at = cursor.at();
    cursor.skip(cursor.uleb());
    return at - entry_.section.begin;
  }

  const CfiEntry& entry_;
  CfiRow& row_;
  RegisterRule initial_[kRegisters];
  CfiRow stack_[kMaxRemembered];
  unsigned remembered_ = 0;
};

// .eh_frame_hdr: version, three encodings, eh_frame pointer, count, table of {first pc, FDE}.
struct HeaderTable {
  const std::uint8_t* eh_frame = nullptr;
  std::uint64_t count = 0;
  const std::uint8_t* table = nullptr;
  std::uint8_t encoding = kPeOmit;
};

bool read_header(ByteRange header, HeaderTable& out) {
  ByteCursor cursor(header.begin, header.end);
  if (cursor.u8() != 1) return false;
  const std::uint8_t frame_encoding = cursor.u8();
  const std::uint8_t count_encoding = cursor.u8();
  out.encoding = cursor.u8();
  const std::uintptr_t base = as_number(header.begin);
  out.eh_frame = reinterpret_cast<const std::uint8_t*>(cursor.pointer(frame_encoding, base));
  out.count = count_encoding == kPeOmit ? 0 : cursor.pointer(count_encoding, base);
  out.table = cursor.at();
  return cursor.ok() && out.eh_frame != nullptr;
}

// The only encoding that linkers write for the table: pairs of 32-bit distances from the header.
constexpr std::uint8_t kSortedTableEncoding = kPeDataRelative | kPeSdata4;

const std::uint8_t* search_table(ByteRange header, const HeaderTable& table, std::uintptr_t pc) {
  const std::uint64_t fits = static_cast<std::uint64_t>(header.end - table.table) / 8;
  std::uint64_t count = table.count < fits ? table.count : fits;
  const auto base = as_number(header.begin);
  const auto at = [&](std::uint64_t index, unsigned column) {
    std::int32_t distance;
    __builtin_memcpy(&distance, table.table + index * 8 + column * 4, sizeof distance);
    return base + static_cast<std::uintptr_t>(std::intptr_t{distance});
  };
  std::uint64_t first = 0;  // the last entry whose pc is <= pc, once found, is first - 1
  while (count > 0) {
    const std::uint64_t half = count / 2;
    if (at(first + half, 0) <= pc) {
      first += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  return first == 0 ? nullptr : reinterpret_cast<const std::uint8_t*>(at(first - 1, 1));
}

// Records read at most in a section without a sorted table.
constexpr unsigned kMaxLinearRecords = 1u << 20;

bool scan_linearly(ByteRange frame, const std::uint8_t* at, std::uintptr_t pc, CfiEntry& entry) {
  for (unsigned i = 0; i < kMaxLinearRecords && at != nullptr; ++i) {
    const std::uint8_t* next = nullptr;
    if (decode_entry(frame, at, entry, &next) && entry.pc_begin <= pc && pc < entry.pc_end) return true;
    at = next;
  }
  return false;
}

}  // namespace

const std::uint8_t* eh_frame_of(ByteRange header) {
  HeaderTable table;
  return read_header(header, table) ? table.eh_frame : nullptr;
}

bool decode_entry(ByteRange frame, const std::uint8_t* at, CfiEntry& entry, const std::uint8_t** next) {
  if (next != nullptr) *next = nullptr;
  RecordHead head;
  if (!read_head(frame, at, head)) return false;
  if (next != nullptr) *next = head.body.end;
  if (head.id == 0 || head.id > static_cast<std::uint64_t>(head.id_at - frame.begin)) return false;
  Cie cie;
  if (!decode_cie(frame, head.id_at - head.id, cie)) return false;
  entry = cie.entry;
  ByteCursor cursor(head.body.begin, head.body.end);
  entry.pc_begin = cursor.pointer(entry.pointer_encoding, 0);
  entry.pc_end = entry.pc_begin + cursor.plain(entry.pointer_encoding);
  if (cie.has_augmentation_data) cursor.skip(cursor.uleb());
  if (!cursor.ok() || entry.pc_end < entry.pc_begin) return false;
  entry.program = {cursor.at(), head.body.end};
  entry.section = frame;
  return true;
}

bool find_entry(ByteRange header, ByteRange frame, std::uintptr_t pc, CfiEntry& entry) {
  HeaderTable table;
  if (!read_header(header, table)) return false;
  if (frame.begin == nullptr) frame = {table.eh_frame, header.end};
  if (table.encoding != kSortedTableEncoding || table.count == 0) {
    return scan_linearly(frame, table.eh_frame, pc, entry);
  }
  const std::uint8_t* record = search_table(header, table, pc);
  return record != nullptr && decode_entry(frame, record, entry, nullptr) && entry.pc_begin <= pc &&
         pc < entry.pc_end;
}

bool row_at(const CfiEntry& entry, std::uintptr_t pc, CfiRow& row, RowRange* range) {
  row = CfiRow{};
  RowMachine machine(entry, row);
  RowRange initial{entry.pc_begin, entry.pc_end};
  if (!machine.run(entry.initial, ~std::uintptr_t{0}, true, initial)) return false;
  machine.keep_initial();
  RowRange found{entry.pc_begin, entry.pc_end};
  if (!machine.run(entry.program, pc, false, found)) return false;
  if (range != nullptr) *range = found;
  return true;
}

}  // namespace penumbra::stacks
