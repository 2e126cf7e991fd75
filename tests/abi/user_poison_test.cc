// Manual poisoning against a model of single bytes: a byte that was poisoned and not unpoisoned since is bad whenever
// its whole granule is; a byte that was unpoisoned last is never bad.
#include <sys/mman.h>

#include <random>
#include <vector>

#include "instrument/abi/abi.h"
#include "shadow/address_map.h"
#include "shadow/check.h"
#include "shadow/encoding.h"
#include "tests/abi/fault_log.h"
#include "tests/support/shadow_map.h"

extern "C" {
void __asan_poison_memory_region(const volatile void*, std::size_t);
void __asan_unpoison_memory_region(const volatile void*, std::size_t);
int __asan_address_is_poisoned(const volatile void*);
void* __asan_region_is_poisoned(void*, std::size_t);
}

namespace penumbra::abi {
namespace {

class UserPoison : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    ASSERT_TRUE(reserve_test_map().ok());
    start();
  }
};

TEST_F(UserPoison, ARegionIsBadUntilItIsUnpoisoned) {
  alignas(8) static char memory[64];
  __asan_poison_memory_region(memory + 8, 24);
  EXPECT_EQ(__asan_address_is_poisoned(memory + 7), 0);
  EXPECT_EQ(__asan_address_is_poisoned(memory + 8), 1);
  EXPECT_EQ(shadow::load_byte(AppAddr(memory + 8)), 0xf7);
  EXPECT_EQ(__asan_region_is_poisoned(memory, 64), memory + 8);
  __asan_unpoison_memory_region(memory + 8, 5);
  EXPECT_EQ(__asan_region_is_poisoned(memory, 64), memory + 13);
  __asan_unpoison_memory_region(memory, 64);
  EXPECT_EQ(__asan_region_is_poisoned(memory, 64), nullptr);
  EXPECT_EQ(__asan_region_is_poisoned(memory, 0), nullptr);
}

TEST_F(UserPoison, RandomRegionsNeverMakeAnUnpoisonedByteBad) {
  alignas(8) static char memory[256];
  std::vector<bool> poisoned(sizeof memory, false);
  std::mt19937 random(20);
  for (int step = 0; step < 20000; ++step) {
    const std::size_t begin = random() % sizeof memory;
    const std::size_t bytes = random() % (sizeof memory - begin + 1);
    const bool poison = random() % 2 != 0;
    (poison ? __asan_poison_memory_region : __asan_unpoison_memory_region)(memory + begin, bytes);
    for (std::size_t i = begin; i < begin + bytes; ++i) poisoned[i] = poison;
    for (std::size_t granule = 0; granule < sizeof memory; granule += 8) {
      bool all = true;
      for (std::size_t i = granule; i < granule + 8; ++i) {
        all = all && poisoned[i];
        if (!poisoned[i]) {
          ASSERT_EQ(__asan_address_is_poisoned(memory + i), 0) << "seed 20, step " << step << ", byte " << i;
        }
      }
      if (all && poison && begin <= granule && granule + 8 <= begin + bytes) {
        ASSERT_EQ(__asan_address_is_poisoned(memory + granule), 1) << "seed 20, step " << step;
      }
    }
  }
  __asan_unpoison_memory_region(memory, sizeof memory);
}

TEST_F(UserPoison, MemoryThatIsNotTheProgramsIsLeftAlone) {
  __asan_poison_memory_region(shadow::shadow_of(AppAddr(0x1000)).ptr<void>(), 64);
  __asan_poison_memory_region(AppAddr(kUserAddressEnd - 8).ptr<void>(), 64);
  __asan_poison_memory_region(AppAddr(~std::uintptr_t{0} - 7).ptr<void>(), 64);
  EXPECT_EQ(__asan_address_is_poisoned(AppAddr(kUserAddressEnd - 8).ptr<void>()), 0);
}

TEST_F(UserPoison, RegionMemoryThatIsNotThereCannotBePoisoned) {
  void* const memory = mmap(nullptr, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const AppAddr base(memory);
  static AppAddr populated_end;
  populated_end = base + (1 << 15);
  shadow::set_span(
      {base, base + (1 << 16), [](AppAddr begin, AppAddr end) {
         return end <= populated_end ? shadow::kNoBadByte : begin < populated_end ? populated_end : begin;
       }});
  __asan_poison_memory_region(memory, 64);
  EXPECT_EQ(shadow::load_byte(base), 0xf7);
  __asan_poison_memory_region(populated_end.ptr<void>(), 64);
  EXPECT_EQ(shadow::load_byte(populated_end), 0);
  shadow::set_span({});
  __asan_unpoison_memory_region(memory, 64);
  munmap(memory, 1 << 16);
}

}  // namespace
}  // namespace penumbra::abi
