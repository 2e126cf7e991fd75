// Frames that are left without returning: what is unpoisoned, on which stack, and what stays.
#include "instrument/abi/stack.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "instrument/abi/abi.h"
#include "instrument/abi/compiled.h"
#include "instrument/abi/stack_bounds.h"
#include "runtime/base/os_linux.h"
#include "shadow/address_map.h"
#include "shadow/check.h"
#include "shadow/encoding.h"
#include "shadow/poison.h"
#include "tests/abi/fault_log.h"
#include "tests/support/shadow_map.h"

extern "C" {
void __asan_handle_no_return();
void __asan_alloca_poison(std::uintptr_t, std::size_t);
void __asan_allocas_unpoison(std::uintptr_t, std::uintptr_t);
void __asan_poison_stack_memory(std::uintptr_t, std::size_t);
void __asan_unpoison_stack_memory(std::uintptr_t, std::size_t);
void __asan_set_shadow_00(std::uintptr_t, std::size_t);
void __asan_set_shadow_f8(std::uintptr_t, std::size_t);
void* __asan_stack_malloc_3(std::size_t);
}

namespace penumbra::abi {
namespace {

using shadow::ShadowTag;

class StackPoison : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    ASSERT_TRUE(reserve_test_map().ok());
    start();
    note_compiled_code();
  }
};

bool is_clear(const void* begin, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += 8) {
    if (shadow::load_byte(AppAddr(begin) + i) != 0) return false;
  }
  return true;
}

AppAddr here() {
  return AppAddr(__builtin_frame_address(0));
}

TEST_F(StackPoison, TheOwnStackEndsWhereTheThreadsDoes) {
  const Stack stack = own_stack();
  ASSERT_EQ(stack.kind, StackKind::kOwn);
  EXPECT_TRUE(stack.contains(here()));
  pthread_attr_t attributes;
  void* low;
  std::size_t bytes;
  ASSERT_EQ(pthread_getattr_np(pthread_self(), &attributes), 0);
  ASSERT_EQ(pthread_attr_getstack(&attributes, &low, &bytes), 0);
  pthread_attr_destroy(&attributes);
  // libc rounds up to the page in which argv and the environment lie; no frame is there.
  EXPECT_LE(stack.range.end.value, reinterpret_cast<std::uintptr_t>(low) + bytes);
  EXPECT_GT(stack.range.end.value, reinterpret_cast<std::uintptr_t>(low) + bytes - (256 << 10));
}

TEST_F(StackPoison, ANoreturnCallUnpoisonsEverythingAboveIt) {
  alignas(32) char frame[128];
  shadow::poison(AppAddr(frame), sizeof frame, ShadowTag::kStackMid);
  __asan_handle_no_return();
  EXPECT_TRUE(is_clear(frame, sizeof frame));
}

TEST_F(StackPoison, AJumpUnpoisonsOnlyWhatLiesBelowItsTarget) {
  alignas(32) char frames[256];
  shadow::poison(AppAddr(frames), sizeof frames, ShadowTag::kStackLeft);
  abandon_frames_below(AppAddr(frames), AppAddr(frames + 128));
  EXPECT_TRUE(is_clear(frames, 128));
  EXPECT_EQ(shadow::load_byte(AppAddr(frames + 128)), 0xf1);
  shadow::clear_stale(AppAddr(frames), sizeof frames);
}

// In a child: sealing has no way back. Neither the mappings nor the signal stack can be asked for then.
void* sealed_thread_body(void*) {
  alignas(32) char frame[128];
  shadow::poison(AppAddr(frame), sizeof frame, ShadowTag::kStackMid);
  os::seal();
  __asan_handle_no_return();
  _exit(is_clear(frame, sizeof frame) ? 0 : 1);
}

TEST_F(StackPoison, ASealedThreadIsClearedToItsThreadPointerDeathTest) {
  EXPECT_EXIT(
      {
        pthread_t thread;
        pthread_create(&thread, nullptr, sealed_thread_body, nullptr);
        pthread_join(thread, nullptr);
      },
      ::testing::ExitedWithCode(0), "");
}

void* thread_body(void*) {
  alignas(32) char frame[64];
  const Stack stack = own_stack();
  EXPECT_TRUE(stack.contains(AppAddr(frame)));
  EXPECT_GT(stack.range.end, here());
  // What a thread that used this stack before may have left, and what this one leaves.
  shadow::poison(AppAddr(round_down(AppAddr(frame).value - 4096, 8)), 64, ShadowTag::kStackLeft);
  begin_thread_stack(here() - 256);
  EXPECT_TRUE(is_clear(AppAddr(round_down(AppAddr(frame).value - 4096, 8)).ptr<void>(), 64));
  shadow::poison(AppAddr(frame), 64, ShadowTag::kStackRight);
  end_thread_stack();
  EXPECT_TRUE(is_clear(frame, 64));
  EXPECT_TRUE(shadow::is_accessible(stack.range.begin, stack.range.bytes()));
  return nullptr;
}

TEST_F(StackPoison, AThreadStartsAndEndsWithACleanStack) {
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, nullptr, thread_body, nullptr), 0);
  pthread_join(thread, nullptr);
}

alignas(32) char g_signal_stack[1 << 16];
char* g_interrupted_frame = nullptr;
bool g_handler_saw_clear = false;

void handler(int) {
  alignas(32) char frame[64];
  shadow::poison(AppAddr(frame), 64, ShadowTag::kStackMid);
  EXPECT_EQ(stack_around(AppAddr(frame)).kind, StackKind::kAlternate);
  __asan_handle_no_return();
  g_handler_saw_clear = is_clear(frame, 64) && is_clear(g_interrupted_frame, 64);
}

TEST_F(StackPoison, AHandlerOnItsOwnStackUnpoisonsThatAndTheInterruptedOne) {
  stack_t stack{};
  stack.ss_sp = g_signal_stack;
  stack.ss_size = sizeof g_signal_stack;
  ASSERT_EQ(sigaltstack(&stack, nullptr), 0);
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_ONSTACK;
  ASSERT_EQ(sigaction(SIGUSR1, &action, nullptr), 0);
  alignas(32) char frame[64];
  g_interrupted_frame = frame;
  shadow::poison(AppAddr(frame), 64, ShadowTag::kStackLeft);
  raise(SIGUSR1);
  EXPECT_TRUE(g_handler_saw_clear);
  stack.ss_flags = SS_DISABLE;
  sigaltstack(&stack, nullptr);
}

TEST_F(StackPoison, OnAnUnknownStackClearingStopsAtForeignPoison) {
  void* const memory = mmap(nullptr, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const AppAddr base(memory);
  const std::uint8_t bytes[] = {0xf1, 0xf1, 0x05, 0xf2, 0x00, 0xf8, 0xca, 0x03, 0xcb, 0xf3, 0x00, 0x04, 0xec, 0xf1};
  for (std::size_t i = 0; i < sizeof bytes; ++i) shadow::store_byte(base + 8 * i, bytes[i]);
  clear_frames_until_foreign(base, base + (1 << 16));
  const std::uint8_t after[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x04, 0xec, 0xf1};
  for (std::size_t i = 0; i < sizeof after; ++i) EXPECT_EQ(shadow::load_byte(base + 8 * i), after[i]) << i;
  shadow::set_bytes(base, sizeof bytes, 0);
  munmap(memory, 1 << 16);
}

TEST_F(StackPoison, AnAllocaHasItsRedzonesUntilItsScopeEnds) {
  alignas(32) char area[192];
  const AppAddr object(area + 32);
  for (std::size_t bytes : {std::size_t{1}, std::size_t{10}, std::size_t{32}, std::size_t{64}}) {
    __asan_alloca_poison(object.value, bytes);
    EXPECT_EQ(shadow::load_byte(object - 1), 0xca);
    EXPECT_EQ(shadow::load_byte(object - 32), 0xca);
    EXPECT_TRUE(shadow::is_accessible(object, bytes));
    EXPECT_EQ(shadow::first_bad(object, bytes + 32), object + bytes);
    EXPECT_EQ(shadow::load_byte(object + (round_up(bytes, 32) + 24)), 0xcb);
    EXPECT_EQ(shadow::load_byte(object + (round_up(bytes, 32) + 32)), 0);
    __asan_allocas_unpoison(object.value - 32, AppAddr(area + 192).value);
    EXPECT_TRUE(is_clear(area, sizeof area));
  }
  __asan_allocas_unpoison(0, AppAddr(area + 192).value);  // no alloca was made
}

TEST_F(StackPoison, ScopesPoisonWholeVariablesAndTheirLastGranule) {
  alignas(8) char variable[24];
  const AppAddr at(variable);
  __asan_poison_stack_memory(at.value, 24);
  EXPECT_EQ(shadow::first_bad(at, 1), at);
  EXPECT_EQ(shadow::load_byte(at + 16), 0xf8);
  __asan_unpoison_stack_memory(at.value, 19);
  EXPECT_TRUE(shadow::is_accessible(at, 19));
  EXPECT_FALSE(shadow::is_accessible(at, 20));
  __asan_set_shadow_f8(shadow::shadow_of(at).value, 3);
  EXPECT_EQ(shadow::first_bad(at, 24), at);
  __asan_set_shadow_00(shadow::shadow_of(at).value, 3);
  EXPECT_TRUE(is_clear(variable, 24));
}

TEST_F(StackPoison, NoFakeStackIsEverGiven) {
  EXPECT_EQ(__asan_stack_malloc_3(512), nullptr);
}

}  // namespace
}  // namespace penumbra::abi
