// The module file: what the rewriter writes about one ELF module and the loader maps into the checked process.
//
// All addresses are link-time addresses of the module; the loader adds the module's load base. The file is
//
//     header | code, page aligned | patched text, page aligned | tables
//
// The patched text is the module's executable segments as they are with all patches, for an area at its own place: mapped
// over the original it costs neither time nor memory for what never runs, and processes share it. Where the area lies
// elsewhere the patches are written one by one.
//
// and in memory the module's *area* is the code followed by kSlotBytes of run-time addresses (the slots), which the code
// reaches relative to rip. The area has a fixed distance to its module, so that the code needs no change where that
// distance can be kept; where it cannot, `links`, `table_operands` and `table_copies` name every place that changes.
//
// Everything here is read by another program than wrote it: a change of meaning raises kModuleVersion.
//
// zone: signal-safe
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/config.h"

namespace penumbra {

inline constexpr char kModuleMagic[8] = {'P', 'E', 'N', 'U', 'M', 'B', 'R', 'A'};
inline constexpr std::uint32_t kModuleVersion = 7;

// A check whose fast path found something calls through the slot of its scratch register and span: a routine that looks
// exactly and returns. The last slots are the routine of special checks, and those before and behind a system call.
inline constexpr unsigned kSlotRegisters = 16;
inline constexpr unsigned kSlotSpans = 64;  // spans of 1..64 bytes
inline constexpr unsigned kSpecialSlot = kSlotRegisters * kSlotSpans;
inline constexpr unsigned kSystemCallSlot = kSpecialSlot + 1;
inline constexpr unsigned kSystemReturnSlot = kSpecialSlot + 2;
inline constexpr unsigned kSlots = kSpecialSlot + 3;
inline constexpr std::size_t kSlotBytes = round_up(kSlots * sizeof(std::uint64_t), kPageSize);

constexpr unsigned check_slot(unsigned scratch, unsigned span) {
  return scratch * kSlotSpans + span - 1;
}

struct ModuleTable {
  std::uint64_t offset = 0;  // in the file
  std::uint64_t count = 0;   // of its records
};

struct ModuleHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t header_bytes;
  std::uint64_t file_bytes;
  std::uint64_t checksum;  // of everything behind this field, as module_checksum() computes it
  char identity[80];       // build-id in hexadecimal, else as in content_key.h; zero-terminated
  std::uint64_t options;   // what was asked of the rewriter, as bits; see ModuleOption
  // The file's own time of last change, in ns since 1970, as its writer set it when all of it was on disk. A file that still
  // has this time has not been written since, and need not be summed at every start.
  std::uint64_t complete_at;
  std::uint64_t text_begin;
  std::uint64_t text_bytes;
  std::int64_t area_address;   // may be negative: below the module
  std::uint64_t code_offset;   // in the file, page aligned
  std::uint64_t code_bytes;    // a multiple of the page size
  ModuleTable text_ranges;     // ModuleTextRange: what of [text_begin, +text_bytes) is mapped, ascending
  ModuleTable patches;         // ModulePatch, ascending
  ModuleTable checks;          // ModuleCheck, ascending by return offset
  ModuleTable accesses;        // ModuleAccess
  ModuleTable places;          // ModulePlace, ascending by code offset
  ModuleTable states;          // ModuleState, ascending by code offset
  ModuleTable links;           // uint32: code offsets of 32-bit operands relative to rip that name the module
  ModuleTable table_operands;  // uint32: code offsets of 32-bit displacements from a jump table to its copy
  ModuleTable table_copies;    // ModuleTableCopy
  ModuleTable redirects;       // ModuleRedirect, ascending by text offset
};

enum ModuleOption : std::uint64_t {
  kModuleChecksReads = 1,
  kModuleChecksWrites = 2,
  kModuleChecksSystemCalls = 4,
};

// An executable segment. There may be holes between two of them.
struct ModuleTextRange {
  std::uint64_t text_offset;  // from text_begin
  std::uint64_t bytes;
  // In the file: its pages with all patches written, from the beginning of its first page to the end of its last. 0 when
  // there are none (another segment shares a page with it).
  std::uint64_t patched_offset;
};

// A jump written over original bytes.
struct ModulePatch {
  std::uint32_t text_offset;  // from text_begin
  std::uint32_t target;       // code offset; for a short jump the text offset of its slot
  enum Kind : std::uint32_t { kJump5, kJump2, kCall } kind;  // kCall: only the operand of a direct call changes
};

// A function that the loader may have done by another one: libc's string functions and its heap. Nothing leads past its
// entry into it, and its relocated copy is what "the original" means from then on.
struct ModuleRedirect {
  std::uint32_t text_offset;  // of its entry, from text_begin
  std::uint32_t code_offset;  // of its relocated copy, kNotMoved where it runs as it is
};
inline constexpr std::uint32_t kNotMoved = ~std::uint32_t{0};

// Which elements of a masked or gathered operand are touched.
struct ElementChoice {
  enum Decider : std::uint8_t { kEverything, kMaskRegister, kVectorSigns, kMmxSigns };
  enum Place : std::uint8_t {
    kOwn,       // each element at its own place
    kPacked,    // the chosen ones side by side: compress and expand
    kTogether,  // all of the operand, if anything is chosen: broadcasts
  };
  Decider decider = kEverything;
  Place place = kOwn;
  std::uint8_t decider_register = 0;
  std::uint8_t element_bytes = 1;   // 1, 2, 4 or 8
  std::uint8_t count = 1;           // of elements, 1..64
  std::uint8_t index_register = 0;  // the vector of indices of a gather or scatter
  bool has_wide_index = false;      // 64 bits of index, else 32

  constexpr std::uint32_t pack() const {
    const unsigned shift = element_bytes == 8 ? 3 : element_bytes / 2u;
    return decider | place << 2 | decider_register << 4 | shift << 9 | (count - 1u) << 11 | index_register << 17 |
           std::uint32_t{has_wide_index} << 22;
  }
  static constexpr ElementChoice unpack(std::uint32_t bits) {
    return {static_cast<Decider>(bits & 3),
            static_cast<Place>(bits >> 2 & 3),
            static_cast<std::uint8_t>(bits >> 4 & 31),
            static_cast<std::uint8_t>(1u << (bits >> 9 & 3)),
            static_cast<std::uint8_t>((bits >> 11 & 63) + 1),
            static_cast<std::uint8_t>(bits >> 17 & 31),
            (bits >> 22 & 1) != 0};
  }
};

// What stands at the return address of a check's slow call.
struct ModuleCheck {
  std::uint32_t return_offset;  // in the code
  std::uint32_t first_access;
  std::uint16_t access_count;
  std::int8_t base;  // register numbers, -1 for none
  std::int8_t index;
  std::uint8_t scale;
  std::uint8_t scratch;
  std::uint8_t is_special;
  std::uint8_t operand;  // of the instruction, when special
  std::int32_t low;      // the span begins here, from base + index * scale; when special, an ElementChoice packed
};

struct ModuleAccess {
  std::uint32_t text_offset;  // of the instruction
  std::int32_t displacement;
  std::uint16_t size;
  std::uint8_t is_write;
  std::uint8_t shape;  // rewrite::AccessShape
};

// From this code offset up to the next record's, the code stands for the instruction at text_offset. An instruction has
// several records, one behind each check that stands before it, the last of them for itself.
struct ModulePlace {
  std::uint32_t code_offset;
  std::uint32_t text_offset;
};

// From this code offset up to the next record's, what of the original state lies elsewhere. Before the first record
// everything is in place.
struct ModuleState {
  std::uint32_t code_offset;
  std::uint16_t stack_bytes;  // rsp is this much below its original value
  std::uint8_t flags_in_ax;   // as lahf and seto leave them
  std::uint8_t rax_home;      // the register that holds rax, 0xff: in place or pushed
  std::uint8_t pushed[3];     // registers in the order of their pushes, 0xff for none
  std::uint8_t is_thunk;      // in the slow part of a check

  constexpr bool operator==(const ModuleState& other) const {
    return stack_bytes == other.stack_bytes && flags_in_ax == other.flags_in_ax && rax_home == other.rax_home &&
           pushed[0] == other.pushed[0] && pushed[1] == other.pushed[1] && pushed[2] == other.pushed[2] &&
           is_thunk == other.is_thunk;
  }
};

// A jump table's copy in the area. Entries of 8 bytes are addresses (the load base is added at run time), entries of 4
// are signed distances from `base`.
struct ModuleTableCopy {
  std::uint32_t code_offset;  // of the first entry
  std::uint32_t count;
  std::uint64_t base;
  std::uint32_t entry_bytes;
  std::uint32_t reserved;
};

static_assert(sizeof(ModuleHeader) == 328 && offsetof(ModuleHeader, checksum) == 24);
static_assert(sizeof(ModuleTextRange) == 24 && sizeof(ModulePatch) == 12 && sizeof(ModuleCheck) == 20 &&
              sizeof(ModuleAccess) == 12);
static_assert(sizeof(ModulePlace) == 8 && sizeof(ModuleState) == 12 && sizeof(ModuleTableCopy) == 24);
static_assert(sizeof(ModuleRedirect) == 8);
static_assert(sizeof(ModuleHeader) <= kPageSize);

// Over whole 64-bit words, a last partial one padded with zeros: some 4 GB/s.
constexpr std::uint64_t module_checksum_step(std::uint64_t sum, std::uint64_t word) {
  sum = (sum ^ word) * 0x9e3779b97f4a7c15u;
  return sum ^ (sum >> 29);
}

}  // namespace penumbra
