// Standing aside: every entry point goes on to the next definition, with its arguments and its result; a name that
// nobody else defines does nothing. A program of its own, because there is no way back.
#include "instrument/abi/abi.h"
#include "shadow/address_map.h"
#include "shadow/encoding.h"
#include "tests/abi/fault_log.h"

extern "C" {
extern unsigned long next_argument;
extern std::size_t next_bytes;
void __asan_load8_noabort(std::uintptr_t);
void __asan_load4_noabort(std::uintptr_t);
void __asan_storeN(std::uintptr_t, std::size_t);
void __asan_report_load4(std::uintptr_t);
void __asan_report_load4_noabort(std::uintptr_t);
void __asan_set_shadow_f8(std::uintptr_t, std::size_t);
int __asan_address_is_poisoned(const void*);
void* __asan_region_is_poisoned(void*, std::size_t);
}

namespace penumbra::abi {
namespace {

TEST(Aside, EveryEntryForwardsWithArgumentsAndResult) {
  ASSERT_TRUE(shadow::reserve_direct_map().ok());
  start();
  alignas(8) static char memory[16];
  *shadow::shadow_of(AppAddr(memory)).ptr() = 0xff;
  FaultLog log;
  __asan_load8_noabort(AppAddr(memory).value);
  EXPECT_EQ(log.faults().size(), 1u);
  EXPECT_EQ(next_argument, 0u);
  log.faults().clear();

  stand_aside();
  __asan_load8_noabort(AppAddr(memory).value);
  EXPECT_EQ(next_argument, AppAddr(memory).value);
  __asan_storeN(5, 6);
  EXPECT_EQ(next_argument, 5u);
  EXPECT_EQ(next_bytes, 6u);
  __asan_report_load4(7);
  EXPECT_EQ(next_argument, 7u);
  __asan_set_shadow_f8(8, 9);
  EXPECT_EQ(next_argument, 8u);
  EXPECT_EQ(next_bytes, 9u);
  EXPECT_EQ(__asan_address_is_poisoned(memory), 77);
  // Defined by us alone.
  __asan_load4_noabort(AppAddr(memory).value);
  __asan_report_load4_noabort(AppAddr(memory).value);
  EXPECT_EQ(__asan_region_is_poisoned(memory, 16), nullptr);
  EXPECT_EQ(log.faults().size(), 0u);
}

}  // namespace
}  // namespace penumbra::abi
