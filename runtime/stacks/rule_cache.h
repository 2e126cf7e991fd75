// The rules of frames seen before, keyed by pc: one 64-bit word each, shared by all threads.
//
//      63            29 28..27 26           8 7          0
//     [ lookup pc >> 13 | kind | CFA offset/8 | rbp slot/8 ]      set: low bits of the pc, mixed with the tag
//
// The lookup pc is the return address minus one, or the exact pc of an interrupted frame. Set and tag together hold
// all 47 bits of it, so a hit is never a guess. A set is two neighbouring words; a new rule takes a free one, else the
// two in turn. (With one word a set, two frames of one hot stack often shared it and threw each other out at every
// walk: 700 cycles a record where 200 do.)
//
// Concurrency: an entry is one word, read and written by plain atomic loads and stores, so no reader sees half of
// one. A writer stores, makes a full fence, and re-reads the module epoch; if it changed since before the module was
// looked up, it takes its entry out again. A clearer raises the epoch, makes a full fence, and then stores zeros. So
// either the writer sees the new epoch and takes its entry out, or its store came before the zeros: no entry of a
// module that is gone outlives the clearing. A word that somebody else has replaced meanwhile is left. Entries never
// move from word to word: a mover could carry one past the clearer.
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
    kNone,  // nothing known
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
  static constexpr unsigned kSetBits = 13;  // 16384 words, 128 KiB
  static constexpr std::uint32_t kMaxCfaOffset = ((1u << 19) - 1) * 8;
  static constexpr std::uint32_t kMaxRbpSlot = 255 * 8;

  // A word of the table, decoded only as far as needed.
  class Entry {
   public:
    explicit Entry(std::uint64_t word) : word_(word) {}
    bool is_hit(std::uintptr_t pc) const { return ((word_ ^ tag_of(pc)) >> kTagShift) == 0 && kind_bits() != 0; }
    bool is_from_rsp() const { return kind_bits() == static_cast<unsigned>(SimpleRule::Kind::kFromRsp); }
    bool is_outermost() const { return kind_bits() == static_cast<unsigned>(SimpleRule::Kind::kOutermost); }
    std::uintptr_t cfa_offset() const { return (word_ >> 8 & 0x7ffff) * 8; }
    std::uintptr_t rbp_slot() const { return (word_ & 0xff) * 8; }

   private:
    unsigned kind_bits() const { return static_cast<unsigned>(word_ >> 27 & 3); }
    std::uint64_t word_;
  };

  __attribute__((always_inline)) static Entry find(std::uintptr_t pc) {
    const std::atomic<std::uint64_t>* const set = g_sets[set_of(pc)].words;
    const Entry first(set[0].load(std::memory_order_relaxed));
    if (first.is_hit(pc)) [[likely]]
      return first;
    return Entry(set[1].load(std::memory_order_relaxed));
  }
  // `epoch` is module_epoch() as it was before the rule's module was looked up.
  static void store(std::uintptr_t pc, SimpleRule rule, std::uint32_t epoch);
  static void clear();

 private:
  static constexpr unsigned kTagShift = 29;
  static constexpr std::uintptr_t kSetMask = (std::uintptr_t{1} << kSetBits) - 1;

  static std::uint64_t tag_of(std::uintptr_t pc) { return pc >> kSetBits << kTagShift; }
  // Undone by the same operation once the tag is known, so set and tag determine the pc.
  static std::size_t set_of(std::uintptr_t pc) { return (pc ^ pc >> kSetBits) & kSetMask; }

  struct alignas(16) Set {
    std::atomic<std::uint64_t> words[2];
  };

  static Set g_sets[std::size_t{1} << kSetBits];
};

}  // namespace penumbra::stacks
