// The rules of frames seen before, keyed by pc: one 64-bit word each, shared by all threads.
//
//      63            30 29..28 27           8 7          0
//     [ lookup pc >> 13 | kind | CFA offset/8 | rbp slot/8 ]      index: low bits of the pc, mixed with the tag
//
// The lookup pc is the return address minus one, or the exact pc of an interrupted frame. Index and tag together hold
// all 47 bits of it, so a hit is never a guess.
//
// Concurrency: an entry is one word, read and written by plain atomic loads and stores, so no reader sees half of
// one. A writer stores, makes a full fence, and re-reads the module epoch; if it changed since before the module was
// looked up, it takes its entry out again. A clearer raises the epoch, makes a full fence, and then stores zeros. So
// either the writer sees the new epoch and takes its entry out, or its store came before the zeros: no entry of a
// module that is gone outlives the clearing. A writer that lost its entry to another pc takes out nothing.
//
// zone: signal-safe
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace penumbra::stacks {

// The fast way to a caller: CFA = (rsp or rbp) + cfa_offset; the return address is at CFA - 8; rbp is kept where
// rbp_slot is 0, else saved at CFA - rbp_slot.
struct SimpleRule {
  enum class Kind : std::uint8_t {
    kNone,      // nothing known
    kFromRsp,
    kFromRbp,
    kOutermost,  // this frame has no caller
  };

  Kind kind = Kind::kNone;
  std::uint32_t cfa_offset = 0;  // bytes, a multiple of 8
  std::uint32_t rbp_slot = 0;    // bytes, a multiple of 8
};

class RuleCache {
 public:
  static constexpr unsigned kIndexBits = 13;  // 8192 entries, 64 KiB
  static constexpr std::uint32_t kMaxCfaOffset = ((1u << 20) - 1) * 8;
  static constexpr std::uint32_t kMaxRbpSlot = 255 * 8;

  // A word of the table, decoded only as far as needed.
  class Entry {
   public:
    explicit Entry(std::uint64_t word) : word_(word) {}
    bool is_hit(std::uintptr_t pc) const { return ((word_ ^ tag_of(pc)) >> kTagShift) == 0 && kind_bits() != 0; }
    bool is_from_rsp() const { return kind_bits() == static_cast<unsigned>(SimpleRule::Kind::kFromRsp); }
    bool is_outermost() const { return kind_bits() == static_cast<unsigned>(SimpleRule::Kind::kOutermost); }
    std::uintptr_t cfa_offset() const { return (word_ >> 8 & 0xfffff) * 8; }
    std::uintptr_t rbp_slot() const { return (word_ & 0xff) * 8; }

   private:
    unsigned kind_bits() const { return static_cast<unsigned>(word_ >> 28 & 3); }
    std::uint64_t word_;
  };

  static Entry find(std::uintptr_t pc) { return Entry(g_words[index_of(pc)].load(std::memory_order_relaxed)); }
  // `epoch` is module_epoch() as it was before the rule's module was looked up.
  static void store(std::uintptr_t pc, SimpleRule rule, std::uint32_t epoch);
  static void clear();

 private:
  static constexpr unsigned kTagShift = 30;
  static constexpr std::uintptr_t kIndexMask = (std::uintptr_t{1} << kIndexBits) - 1;

  static std::uint64_t tag_of(std::uintptr_t pc) { return pc >> kIndexBits << kTagShift; }
  // Undone by the same operation once the tag is known, so index and tag determine the pc.
  static std::size_t index_of(std::uintptr_t pc) { return (pc ^ pc >> kIndexBits) & kIndexMask; }

  static std::atomic<std::uint64_t> g_words[std::size_t{1} << kIndexBits];
};

}  // namespace penumbra::stacks
