// first_bad against the byte loop that defines it: exhaustively over small ranges, randomly over large ones; and
// poison, unpoison and their any-range forms against a model of single bytes.
#include "shadow/check.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdio>
#include <fstream>
#include <random>
#include <string>

#include "shadow/address_map.h"
#include "shadow/poison.h"
#include "tests/support/shadow_map.h"

namespace penumbra::shadow {
namespace {

class FirstBad : public ::testing::Test {
 protected:
  static constexpr std::size_t kBytes = 1 << 20;

  void SetUp() override {
    ASSERT_TRUE(reserve_test_map().ok());
    memory_ = AppAddr(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }

  void TearDown() override {
    clear_stale(memory_, kBytes);
    munmap(memory_.ptr<void>(), kBytes);
  }

  void set(std::size_t granule, std::uint8_t value) { store_byte(memory_ + granule * kGranuleSize, value); }

  AppAddr memory_;
};

TEST_F(FirstBad, AgreesWithTheByteLoopOnEverySmallRange) {
  // Four granules, each clear, partial or poisoned; every begin and every size over them.
  const std::uint8_t values[] = {0, 1, 4, 7, 8, 0x7f, 0x80, 0xf8, 0xff};
  for (std::uint8_t a : values) {
    for (std::uint8_t b : values) {
      for (std::uint8_t c : values) {
        set(0, a);
        set(1, b);
        set(2, c);
        set(3, 0);
        for (std::size_t begin = 0; begin < 24; ++begin) {
          for (std::size_t size = 0; begin + size <= 32; ++size) {
            ASSERT_EQ(first_bad(memory_ + begin, size), first_bad_reference(memory_ + begin, size))
                << +a << ' ' << +b << ' ' << +c << " begin " << begin << " size " << size;
          }
        }
      }
    }
  }
}

TEST_F(FirstBad, ABlocksShadowIsSetAsAWholeAndItsNeighboursStay) {
  constexpr std::size_t kFirst = 16;  // granules before the block
  for (std::size_t total = kGranuleSize; total <= 24 * kGranuleSize; total += kGranuleSize) {
    for (std::size_t left = 0; left <= total && left <= 5 * kGranuleSize; left += kGranuleSize) {
      for (std::size_t bytes = 0; left + bytes <= total; ++bytes) {
        for (std::size_t g = 0; g < 64; ++g) set(g, 0x55);
        const AppAddr block = memory_ + kFirst * kGranuleSize;
        set_block(block, left, ShadowTag::kHeapLeftRedzone, bytes, total, ShadowTag::kHeapRightRedzone);
        for (std::size_t g = 0; g < 64; ++g) {
          const std::size_t at = (g - kFirst) * kGranuleSize;  // wraps around before the block
          const std::uint8_t expected = g < kFirst || at >= total ? 0x55
                                        : at < left               ? static_cast<int>(ShadowTag::kHeapLeftRedzone)
                                        : at + kGranuleSize <= left + bytes ? 0
                                        : at < left + bytes                 ? bytes % kGranuleSize
                                                            : static_cast<int>(ShadowTag::kHeapRightRedzone);
          ASSERT_EQ(load_byte(memory_ + g * kGranuleSize), expected)
              << "granule " << g << " of total " << total << " left " << left << " bytes " << bytes;
        }
      }
    }
  }
}

TEST_F(FirstBad, AgreesWithTheByteLoopOnLargeRandomRanges) {
  std::mt19937 random(20191212);
  for (int round = 0; round < 300; ++round) {
    clear_stale(memory_, kBytes);
    for (unsigned i = random() % 3; i > 0; --i) {
      set(random() % (kBytes / kGranuleSize), static_cast<std::uint8_t>(random() % 256));
    }
    for (int probe = 0; probe < 4; ++probe) {
      const std::size_t begin = random() % kBytes;
      const std::size_t size = random() % (kBytes - begin);
      ASSERT_EQ(first_bad(memory_ + begin, size), first_bad_reference(memory_ + begin, size));
    }
  }
}

TEST_F(FirstBad, SizeZeroIsFineAnywhere) {
  set(0, 0xff);
  EXPECT_EQ(first_bad(memory_, 0), kNoBadByte);
  EXPECT_EQ(first_bad(AppAddr(~std::uintptr_t{0}), 0), kNoBadByte);
}

TEST_F(FirstBad, WrappingRangeIsBadAtItsBegin) {
  EXPECT_EQ(first_bad(memory_, ~std::size_t{0}), memory_);
  EXPECT_EQ(first_bad(memory_, static_cast<std::size_t>(-2)), memory_);
}

TEST_F(FirstBad, RangeThatLeavesTheProgramIsBadWhereItDoes) {
  EXPECT_EQ(first_bad(AppAddr(kUserAddressEnd - 4), 8), AppAddr(kUserAddressEnd));
  if (is_direct()) {
    EXPECT_EQ(first_bad(AppAddr(kShadowOffset - 4), 8), kLowMemoryEnd);
    EXPECT_EQ(first_bad(kLowMemoryEnd, 1), kLowMemoryEnd);
  } else {
    EXPECT_EQ(first_bad(AppAddr(kShadowOffset - 4), 8), kNoBadByte);
  }
  EXPECT_EQ(first_bad(AppAddr(0xffff800000000000), 1), AppAddr(0xffff800000000000));
}

// Around both ends of each part of the address space, and around 0 where a range may wrap.
TEST_F(FirstBad, AgreesWithTheByteLoopAtEveryEdgeOfTheAddressSpace) {
  const std::uintptr_t edges[] = {0, kLowMemoryEnd.value, kHighMemoryBegin.value, kUserAddressEnd,
                                  std::uintptr_t{1} << 63};
  for (const std::uintptr_t edge : edges) {
    for (std::size_t before = 0; before <= 20; ++before) {
      for (std::size_t after = 0; after <= 20; ++after) {
        const AppAddr begin(edge - before);
        const AppAddr bad = first_bad(begin, before + after);
        ASSERT_EQ(bad, first_bad_reference(begin, before + after))
            << std::hex << begin.value << " +" << before + after;
        // Said again without the search: an answer of "fine" needs every byte, or only the one at 0, to be the program's.
        bool is_fine = edge != 0 || before == 0;
        for (std::size_t i = 0; i < before + after && is_fine; ++i) is_fine = has_shadow(begin + i);
        ASSERT_EQ(bad == kNoBadByte, is_fine || before + after == 0)
            << std::hex << begin.value << " +" << before + after;
      }
    }
  }
}

TEST_F(FirstBad, TheLastByteOfAllIsBadLikeEveryOtherOutsideTheProgram) {
  const AppAddr last(~std::uintptr_t{0});
  for (const std::size_t size : {std::size_t{1}, std::size_t{2}, std::size_t{8}, ~std::size_t{0}}) {
    EXPECT_EQ(first_bad(last, size), last);
    EXPECT_NE(first_bad(last, size), kNoBadByte);
    EXPECT_FALSE(is_accessible(last, size));
  }
}

TEST_F(FirstBad, TheByteAtZeroHidesNoneOfItsNeighbours) {
  poison(AppAddr(), 8, ShadowTag::kUserPoison);
  EXPECT_EQ(first_bad(AppAddr(), 8), AppAddr(1));
  EXPECT_EQ(first_bad(AppAddr(), 8), first_bad_reference(AppAddr(), 8));
  EXPECT_EQ(first_bad(AppAddr(), 1), kNoBadByte);
  unpoison(AppAddr(), 8);
}

TEST_F(FirstBad, GranuleStraddlingAccessIsSeen) {
  // Inline compiler checks miss this one: 8 bytes at +60 of a 64-byte object.
  poison(memory_ + 64, 64, ShadowTag::kHeapRightRedzone);
  EXPECT_EQ(first_bad(memory_ + 60, 8), memory_ + 64);
}

TEST_F(FirstBad, PoisonCallsMatchAModelOfBytes) {
  constexpr std::size_t kModelBytes = 256;
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    clear_stale(memory_, kModelBytes + 64);
    unpoison(memory_, kModelBytes);
    const std::size_t begin = random() % 100;
    const std::size_t size = random() % 100;
    poison_any(memory_ + begin, size, ShadowTag::kUserPoison);
    for (std::size_t i = 0; i < kModelBytes; ++i) {
      const bool inside = i >= begin && i < begin + size;
      const bool bad = !is_accessible(memory_ + i, 1);
      if (!inside) {
        ASSERT_FALSE(bad) << "a byte outside the range was poisoned";
      } else if (round_up(begin, 8) <= round_down(i, 8) && round_down(i, 8) + 8 <= begin + size) {
        ASSERT_TRUE(bad) << "a whole granule inside the range was not";
      }
    }
    unpoison_any(memory_ + begin, size);
    for (std::size_t i = begin; i < begin + size; ++i) ASSERT_TRUE(is_accessible(memory_ + i, 1));
  }
}

TEST_F(FirstBad, UnpoisonWithTailLeavesExactlyTheObject) {
  for (std::size_t size = 0; size <= 64; ++size) {
    unpoison_with_tail(memory_, size, 96, ShadowTag::kHeapRightRedzone);
    if (size != 0) {
      EXPECT_EQ(first_bad(memory_, size), kNoBadByte);
    }
    EXPECT_EQ(first_bad(memory_, size + 1), memory_ + size);
    EXPECT_FALSE(is_accessible(memory_ + 95, 1));
    clear_stale(memory_, 96);
  }
}

// Kilobytes of memory that the mapping around `address` keeps for itself: a shadow page that was only read shows the
// shared zero page and counts as nothing, a written one counts.
std::size_t private_kilobytes_at(std::uintptr_t address) {
  std::ifstream smaps("/proc/self/smaps");
  std::string line;
  bool inside = false;
  while (std::getline(smaps, line)) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    std::size_t kilobytes = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) inside = begin <= address && address < end;
    if (inside && std::sscanf(line.c_str(), "Private_Dirty: %zu kB", &kilobytes) == 1) return kilobytes;
  }
  ADD_FAILURE() << "no mapping at " << std::hex << address;
  return 0;
}

TEST_F(FirstBad, ClearStaleWritesNothingWhereShadowIsUntouched) {
  const std::size_t bytes = std::size_t{64} << 20;
  void* big = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(big, MAP_FAILED);
  const auto shadow_memory = [&] {
    return is_direct() ? private_kilobytes_at(shadow_of(AppAddr(big)).value) : internal::g_paged_map.pages();
  };
  const std::size_t before = shadow_memory();
  clear_stale(AppAddr(big), bytes);
  EXPECT_EQ(shadow_memory(), before);
  munmap(big, bytes);
}

TEST_F(FirstBad, ClearStaleClearsEverythingThatIsNotZero) {
  poison(memory_ + 40, kBytes - 80, ShadowTag::kUserPoison);
  clear_stale(memory_, kBytes);
  EXPECT_EQ(first_bad(memory_, kBytes), kNoBadByte);
}

}  // namespace
}  // namespace penumbra::shadow
