// The public interface's answers: about the last report, about addresses, and what programs are called back with.
#include <cstring>

#include "instrument/abi/abi.h"
#include "shadow/address_map.h"
#include "shadow/encoding.h"
#include "shadow/poison.h"
#include "tests/abi/fault_log.h"
#include "tests/support/shadow_map.h"

extern "C" {
int __asan_report_present();
std::uintptr_t __asan_get_report_pc();
std::uintptr_t __asan_get_report_address();
int __asan_get_report_access_type();
std::size_t __asan_get_report_access_size();
const char* __asan_get_report_description();
void __asan_report_error(void*, void*, void*, void*, int, std::size_t);
void __asan_set_error_report_callback(void (*)(const char*));
void __sanitizer_set_death_callback(void (*)());
int __sanitizer_acquire_crash_state();
const char* __asan_locate_address(void*, char*, std::size_t, void**, std::size_t*);
std::size_t __asan_get_alloc_stack(void*, void**, std::size_t, int*);
std::size_t __asan_get_free_stack(void*, void**, std::size_t, int*);
void __asan_get_shadow_mapping(std::size_t*, std::size_t*);
int __sanitizer_get_ownership(const volatile void*);
std::size_t __sanitizer_get_allocated_size(const volatile void*);
const void* __sanitizer_get_allocated_begin(const void*);
void __asan_register_globals(const void*, std::size_t);
void __asan_unregister_globals(const void*, std::size_t);
void __sanitizer_start_switch_fiber(void**, const void*, std::size_t);
void __sanitizer_finish_switch_fiber(void*, const void**, std::size_t*);
}

namespace penumbra::abi {
namespace {

class Interface : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    ASSERT_TRUE(reserve_test_map().ok());
    start();
  }
};

std::string g_heard;  // what the program was called back with
int g_deaths = 0;

TEST_F(Interface, ARaisedReportIsKeptAndTold) {
  __asan_set_error_report_callback([](const char* text) { g_heard = text; });
  set_fault_hook([](const Fault& fault) { note_report(fault, "use-after-poison", "the whole text"); });
  char target[8];
  __asan_report_error(reinterpret_cast<void*>(0x1234), nullptr, nullptr, target, 1, 4);
  set_fault_hook(nullptr);
  EXPECT_EQ(__asan_report_present(), 1);
  EXPECT_EQ(__asan_get_report_pc(), 0x1234u);
  EXPECT_EQ(__asan_get_report_address(), AppAddr(target).value);
  EXPECT_EQ(__asan_get_report_access_type(), 1);
  EXPECT_EQ(__asan_get_report_access_size(), 4u);
  EXPECT_STREQ(__asan_get_report_description(), "use-after-poison");
  EXPECT_EQ(g_heard, "the whole text");
}

TEST_F(Interface, TheDeathCallbackRunsOnce) {
  __sanitizer_set_death_callback([] { ++g_deaths; });
  run_death_callback();
  run_death_callback();
  EXPECT_EQ(g_deaths, 1);
}

TEST_F(Interface, OneCallerOnlyOwnsTheCrash) {
  EXPECT_EQ(__sanitizer_acquire_crash_state(), 1);
  EXPECT_EQ(__sanitizer_acquire_crash_state(), 0);
}

// One live object of 40 bytes, 16 bytes into the block; freed objects lie in the second half.
alignas(16) char g_heap[128];

void pretend_heap() {
  Hooks hooks;
  hooks.describe_object = [](AppAddr a, ObjectInfo& info) {
    if (a < AppAddr(g_heap) || a >= AppAddr(g_heap + 128)) return false;
    const bool live = a < AppAddr(g_heap + 64);
    info = {AppAddr(g_heap + (live ? 16 : 80)), 40, live, 7, live ? 0u : 8u};
    return true;
  };
  hooks.object_stack = [](AppAddr, bool freed, std::uintptr_t* frames, std::size_t max) {
    if (max > 0) frames[0] = freed ? 0x200 : 0x100;
    return std::size_t{1};
  };
  set_hooks(hooks);
}

TEST_F(Interface, ObjectsAreKnownByTheirBegin) {
  pretend_heap();
  EXPECT_EQ(__sanitizer_get_ownership(g_heap + 16), 1);
  EXPECT_EQ(__sanitizer_get_ownership(g_heap + 17), 0);
  EXPECT_EQ(__sanitizer_get_ownership(g_heap + 80), 0);
  EXPECT_EQ(__sanitizer_get_allocated_size(g_heap + 16), 40u);
  EXPECT_EQ(__sanitizer_get_allocated_size(g_heap + 80), 0u);
  EXPECT_EQ(__sanitizer_get_allocated_begin(g_heap + 55), g_heap + 16);
  EXPECT_EQ(__sanitizer_get_allocated_begin(g_heap + 56), nullptr);
  void* frames[4];
  int thread = 0;
  EXPECT_EQ(__asan_get_alloc_stack(g_heap + 20, frames, 4, &thread), 1u);
  EXPECT_EQ(frames[0], reinterpret_cast<void*>(0x100));
  EXPECT_EQ(thread, 7);
  EXPECT_EQ(__asan_get_free_stack(g_heap + 20, frames, 4, &thread), 0u);
  EXPECT_EQ(__asan_get_free_stack(g_heap + 90, frames, 4, &thread), 1u);
  EXPECT_EQ(frames[0], reinterpret_cast<void*>(0x200));
  EXPECT_EQ(thread, 8);
  set_hooks({});
}

TEST_F(Interface, AddressesAreLocated) {
  pretend_heap();
  struct {
    const void* begin = g_heap;
    std::size_t bytes = 5, padded = 32;
    const char* name = "g_something";
    const char* module = "m.c";
    std::size_t dynamic = 0;
    const void* location = nullptr;
    std::uintptr_t odr = 0;
  } global;
  alignas(32) static char variable[32];
  global.begin = variable;
  char name[8];
  void* begin = nullptr;
  std::size_t bytes = 0;
  __asan_register_globals(&global, 1);
  EXPECT_STREQ(__asan_locate_address(variable + 2, name, sizeof name, &begin, &bytes), "global");
  EXPECT_STREQ(name, "g_somet");
  EXPECT_EQ(begin, variable);
  EXPECT_EQ(bytes, 5u);
  __asan_unregister_globals(&global, 1);
  EXPECT_STREQ(__asan_locate_address(g_heap + 20, nullptr, 0, &begin, &bytes), "heap");
  EXPECT_EQ(begin, g_heap + 16);
  EXPECT_STREQ(__asan_locate_address(name, nullptr, 0, nullptr, nullptr), "stack");
  EXPECT_STREQ(__asan_locate_address(AppAddr(shadow::kShadowOffset).ptr<void>(), nullptr, 0, nullptr, nullptr),
               shadow::is_direct() ? "shadow" : "invalid");
  EXPECT_STREQ(__asan_locate_address(AppAddr(std::uintptr_t{1} << 60).ptr<void>(), nullptr, 0, nullptr, nullptr),
               "invalid");
  set_hooks({});
}

TEST_F(Interface, TheShadowMappingIsTheOneInUse) {
  std::size_t shift;
  std::size_t offset;
  __asan_get_shadow_mapping(&shift, &offset);
  const AppAddr here(&shift);
  EXPECT_EQ((here.value >> shift) + offset, shadow::shadow_of(here).value);
}

TEST_F(Interface, AFiberSwitchSaysWhereTheThreadWasAndBack) {
  static char fiber[4096];
  const void* thread_stack = nullptr;
  std::size_t thread_bytes = 0;
  void* saved = fiber;
  __sanitizer_start_switch_fiber(&saved, fiber, sizeof fiber);
  EXPECT_EQ(saved, nullptr);
  __sanitizer_finish_switch_fiber(saved, &thread_stack, &thread_bytes);
  const char* const here = static_cast<const char*>(__builtin_frame_address(0));
  EXPECT_LT(thread_stack, here);
  EXPECT_GT(static_cast<const char*>(thread_stack) + thread_bytes, here);
  __sanitizer_start_switch_fiber(nullptr, thread_stack, thread_bytes);
  const void* fiber_stack = nullptr;
  std::size_t fiber_bytes = 0;
  __sanitizer_finish_switch_fiber(nullptr, &fiber_stack, &fiber_bytes);
  EXPECT_EQ(fiber_stack, fiber);
  EXPECT_EQ(fiber_bytes, sizeof fiber);
}

}  // namespace
}  // namespace penumbra::abi
