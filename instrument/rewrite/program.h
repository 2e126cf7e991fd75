// The code of a module: its functions, their instructions, and how control flows between them.
//
// Functions are the ranges of .eh_frame, decoded from begin to end. Each is cut into basic blocks; a block ends at every
// instruction that may go elsewhere and before every place that control may come to from elsewhere. Edges follow direct
// jumps, also into other functions (a cold part is one), and jump tables that were found.
//
// I1  blocks of a function are contiguous, cover all of its instructions, and ascend.
// I2  an edge leads to a block's first instruction.
// I3  a function whose instructions are not all believed has no blocks; it runs as it is.
// I4  every address that control can reach a good function by from outside of known edges is an entry: function starts,
//     return sites, landing pads, targets of tables, addresses that data or code name, jumps from other functions.
//
// zone: hosted
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "instrument/rewrite/decoder.h"
#include "instrument/rewrite/eh_frame.h"
#include "instrument/rewrite/elf_image.h"
#include "instrument/rewrite/instruction_index.h"

namespace penumbra::rewrite {

// Why control may come to a block from where no edge shows it. Bits.
enum Entry : std::uint8_t {
  kNoEntry = 0,
  kEntryFunction = 1,  // the begin of a function that something names
  kEntryReturn = 2,    // behind a call
  kEntryLandingPad = 4,
  kEntryPointer = 8,  // named by data, by a symbol, or by an address computation in code
  kEntryTable = 16,   // target of a jump table
  kEntryJump = 32,    // target of a direct jump or call from another function
};

inline constexpr std::uint32_t kNone = ~std::uint32_t{0};

struct Block {
  std::uint32_t function = 0;
  std::uint32_t first = 0;  // instruction
  std::uint32_t count = 0;
  std::uint32_t first_edge = 0;
  std::uint32_t edge_count = 0;
  std::uint8_t entry = kNoEntry;
  // Control may leave to where no edge shows it: an unresolved indirect jump, a jump out of known functions.
  bool leaves_to_unknown = false;
};

struct Function {
  FrameRange range;
  std::uint32_t first = 0;  // instruction
  std::uint32_t count = 0;
  std::uint32_t first_block = 0;
  std::uint32_t block_count = 0;
  std::uint8_t padding = 0;          // bytes of no-operations behind it, up to the next function
  Doubt doubt = Doubt::kNone;        // of the first instruction that is not believed
  bool has_unknown_callers = false;  // something other than a direct call or jump seen here names its begin
  // A function that is not understood names its begin: what a compiler that saw both agreed on with it nobody knows.
  bool has_doubted_callers = false;
  // An indirect jump that is neither one through a table that was found nor through a pointer that memory holds whole
  // (a virtual function's tail call): patches are restricted.
  bool has_unresolved_jump = false;
};

// A table of jump targets. Targets are what the table's entries name; for a table of offsets they are relative to `base`.
struct JumpTable {
  std::uint32_t jump = 0;          // instruction that jumps
  std::uint32_t load = 0;          // instruction that reads the table; the jump itself when it jumps through memory
  std::uint64_t table = 0;         // address of entry 0
  std::uint64_t base = 0;          // what offsets are added to
  std::uint8_t entry_bytes = 8;    // 8: addresses, 4: signed offsets
  std::uint32_t first_target = 0;  // into Program::table_targets
  std::uint32_t target_count = 0;
};

class Program {
 public:
  Program(const ElfImage& image, Decoder& decoder);

  const ElfImage& image() const { return image_; }
  const Decoder& decoder() const { return decoder_; }
  const std::vector<Function>& functions() const { return functions_; }
  const std::vector<Block>& blocks() const { return blocks_; }
  const std::vector<JumpTable>& tables() const { return tables_; }
  std::span<const Instruction> instructions() const { return instructions_; }
  std::span<const std::uint32_t> successors(const Block& block) const {
    return std::span(edges_).subspan(block.first_edge, block.edge_count);
  }
  std::span<const std::uint64_t> targets(const JumpTable& table) const {
    return std::span(table_targets_).subspan(table.first_target, table.target_count);
  }

  const Form& form(std::uint32_t instruction) const { return decoder_.form(instructions_[instruction].form); }
  std::uint64_t address(std::uint32_t instruction) const { return text_begin_ + instructions_[instruction].offset; }
  std::span<const std::uint8_t> bytes(std::uint32_t instruction) const {
    return text_.subspan(instructions_[instruction].offset, form(instruction).length);
  }
  std::uint64_t text_begin() const { return text_begin_; }
  std::uint64_t text_end() const { return text_begin_ + text_.size(); }

  // The instruction, function or block that begins exactly here or holds this address; kNone if there is none.
  std::uint32_t instruction_at(std::uint64_t address) const;
  std::uint32_t function_at(std::uint64_t address) const;
  std::uint32_t block_of(std::uint32_t instruction) const;
  std::uint32_t block_at(std::uint64_t address) const;  // of the instruction that begins here, if it leads a block

  // Functions whose exception tables name this landing pad.
  std::vector<std::uint32_t> pad_owners(std::uint64_t pad) const;

  // Checks I1..I4 anew; throws std::logic_error with the claim that does not hold.
  void validate() const;

 private:
  void decode_functions();
  void doubt_overlaps();
  void note_names(const FrameRange& range);
  void find_pointers();
  void find_tables(Function& function);
  bool read_table(const Function& function, JumpTable& table);
  void make_blocks();
  void make_edges();
  void add_entry(std::uint64_t address, Entry why);
  // What a register holds at `instruction` when every way there loads it from one lea of a rip-relative address.
  std::optional<std::uint64_t> constant_before(const Function& function, std::uint32_t instruction, Register r) const;

  const ElfImage& image_;
  Decoder& decoder_;
  std::span<const std::uint8_t> text_;  // the executable segments, seen as one run
  std::vector<std::uint8_t> joined_text_;
  std::uint64_t text_begin_ = 0;
  std::vector<Instruction> instructions_;
  InstructionIndex index_;
  std::vector<std::uint8_t> entry_at_;           // by instruction: Entry bits
  std::vector<std::uint64_t> names_of_doubted_;  // what functions that are not understood call, jump to or name
  std::vector<std::uint64_t> named_data_;        // addresses of data that code names: where one table must end
  std::vector<std::pair<std::uint64_t, std::uint32_t>> pads_;  // landing pad, function of its table: sorted
  std::vector<Function> functions_;
  std::vector<Block> blocks_;
  std::vector<std::uint32_t> edges_;
  std::vector<JumpTable> tables_;
  std::vector<std::uint64_t> table_targets_;
};

}  // namespace penumbra::rewrite
