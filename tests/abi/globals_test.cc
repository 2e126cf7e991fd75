// Registration of globals: redzones come and go with it, and a report finds the name.
#include "instrument/abi/globals.h"

#include <cstdint>

#include "instrument/abi/abi.h"
#include "shadow/address_map.h"
#include "shadow/check.h"
#include "shadow/encoding.h"
#include "tests/abi/fault_log.h"
#include "tests/support/shadow_map.h"

extern "C" {
void __asan_register_globals(const void* globals, std::size_t count);
void __asan_unregister_globals(const void* globals, std::size_t count);
}

namespace penumbra::abi {
namespace {

struct Location {
  const char* file;
  int line;
  int column;
};

struct Descriptor {
  const void* begin;
  std::size_t bytes;
  std::size_t bytes_with_redzone;
  const char* name;
  const char* module;
  std::size_t has_dynamic_init;
  const Location* location;
  std::uintptr_t odr_indicator;
};

// Two globals as a compiler lays them out: 13 bytes in 64, 40 bytes in 96.
alignas(64) char memory[160];
constexpr Location kLocation{"a.c", 7, 3};
const Descriptor kGlobals[] = {
    {memory, 13, 64, "small", "a.c", 0, &kLocation, 0},
    {memory + 64, 40, 96, "large", "a.c", 0, nullptr, 0},
};

class Globals : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    ASSERT_TRUE(reserve_test_map().ok());
    start();
  }
};

TEST_F(Globals, ExactlyTheirBytesAreAccessibleWhileRegistered) {
  __asan_register_globals(kGlobals, 2);
  EXPECT_EQ(shadow::first_bad(AppAddr(memory), 160), AppAddr(memory + 13));
  EXPECT_TRUE(shadow::is_accessible(AppAddr(memory + 64), 40));
  EXPECT_EQ(shadow::first_bad(AppAddr(memory + 64), 96), AppAddr(memory + 104));
  EXPECT_EQ(shadow::load_byte(AppAddr(memory + 16)), 0xf9);
  EXPECT_EQ(registered_globals(), 2u);
  __asan_unregister_globals(kGlobals, 2);
  EXPECT_TRUE(shadow::is_accessible(AppAddr(memory), 160));
  EXPECT_EQ(registered_globals(), 0u);
}

TEST_F(Globals, AReportFindsTheOneThatIsMeant) {
  __asan_register_globals(kGlobals, 2);
  GlobalInfo info;
  ASSERT_TRUE(describe_global(AppAddr(memory + 13), info));
  EXPECT_STREQ(info.name, "small");
  EXPECT_STREQ(info.file, "a.c");
  EXPECT_EQ(info.line, 7u);
  ASSERT_TRUE(describe_global(AppAddr(memory + 64 + 95), info));
  EXPECT_STREQ(info.name, "large");
  EXPECT_EQ(info.file, nullptr);
  EXPECT_EQ(info.bytes, 40u);
  EXPECT_TRUE(describe_global(AppAddr(memory) - 3, info));
  EXPECT_STREQ(info.name, "small");
  EXPECT_FALSE(describe_global(AppAddr(memory + 160), info));
  __asan_unregister_globals(kGlobals, 2);
  EXPECT_FALSE(describe_global(AppAddr(memory), info));
}

TEST_F(Globals, ManyModulesComeAndGoInAnyOrder) {
  // More batches than one page of the list holds.
  static Descriptor modules[400];
  for (std::size_t i = 0; i < 400; ++i) {
    modules[i] = kGlobals[0];
    __asan_register_globals(&modules[i], 1);
  }
  EXPECT_EQ(registered_globals(), 400u);
  for (std::size_t i = 0; i < 400; ++i) __asan_unregister_globals(&modules[(i * 7) % 400], 1);
  EXPECT_EQ(registered_globals(), 0u);
  __asan_unregister_globals(&modules[0], 1);  // a second time: not in the list any more
  EXPECT_EQ(registered_globals(), 0u);
}

}  // namespace
}  // namespace penumbra::abi
