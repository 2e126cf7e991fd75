// Following real stacks of this process: what the unwinder says against what glibc's backtrace() says from the same
// place, and the shapes of stack that break unwinders.
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/os_linux.h"
#include "runtime/stacks/stacks.h"

#include <gtest/gtest.h>

namespace {

using penumbra::CodeContext;
using penumbra::stacks::kBrokenStack;

constexpr std::size_t kMax = 64;

struct Trace {
  std::vector<std::uintptr_t> ours;
  std::vector<std::uintptr_t> theirs;
};

// Both traces of one place. Each starts in the caller of this function.
__attribute__((noinline)) void take(Trace& trace) {
  std::uintptr_t frames[kMax];
  // This test is compiled with frame pointers, as everything that calls unwind() is.
  const std::size_t count = penumbra::stacks::unwind(PENUMBRA_CALLER(), frames, kMax);
  void* reference[kMax + 1];
  const int reference_count = backtrace(reference, kMax + 1);
  trace.ours.assign(frames, frames + count);
  trace.theirs.clear();
  for (int i = 1; i < reference_count; ++i) trace.theirs.push_back(reinterpret_cast<std::uintptr_t>(reference[i]));
}

// backtrace() was called a few instructions later than unwind(), in the same frame; all return addresses agree.
void expect_same(const Trace& trace) {
  EXPECT_EQ(trace.ours, trace.theirs);
  EXPECT_GE(trace.ours.size(), 3u);
}

__attribute__((noinline)) void recurse(int depth, const std::function<void()>& bottom) {
  if (depth == 0) {
    bottom();
  } else {
    recurse(depth - 1, bottom);
  }
  asm volatile("");  // so that neither call is a jump
}

TEST(Unwind, AgreesWithBacktraceFromHere) {
  Trace trace;
  for (int round = 0; round < 3; ++round) {  // cold, then by cached rules
    take(trace);
    expect_same(trace);
  }
}

TEST(Unwind, StopsAtTheDepthAskedFor) {
  std::uintptr_t frames[kMax + 1];
  frames[5] = 0x1234;
  recurse(20, [&] { EXPECT_EQ(penumbra::stacks::unwind(PENUMBRA_CALLER(), frames, 5), 5u); });
  EXPECT_EQ(frames[5], 0x1234u);
  EXPECT_EQ(penumbra::stacks::unwind(PENUMBRA_CALLER(), frames, 0), 0u);
}

TEST(Unwind, FollowsRecursion) {
  Trace trace;
  recurse(30, [&] { take(trace); });
  expect_same(trace);
  EXPECT_GE(trace.ours.size(), 31u);
}

__attribute__((noinline)) void with_alloca(std::size_t bytes, Trace& trace) {
  auto* memory = static_cast<volatile char*>(__builtin_alloca(bytes));
  memory[0] = 1;
  take(trace);
  memory[bytes - 1] = 1;
}

TEST(Unwind, FollowsFramesOfVariableSize) {
  for (const std::size_t bytes : {1u, 100u, 5000u, 300000u}) {
    Trace trace;
    with_alloca(bytes, trace);
    expect_same(trace);
  }
}

__attribute__((noinline)) int realigned(Trace& trace) {
  alignas(64) volatile char aligned[128];
  aligned[1] = 2;
  volatile auto* variable = static_cast<volatile char*>(__builtin_alloca(static_cast<std::size_t>(aligned[1]) * 50));
  variable[0] = 1;
  take(trace);
  return aligned[1] + variable[0];
}

TEST(Unwind, FollowsRealignedFrames) {
  Trace trace;
  EXPECT_EQ(realigned(trace), 3);
  expect_same(trace);
}

Trace* g_handler_trace = nullptr;
std::vector<std::uintptr_t>* g_context_trace = nullptr;

void handler(int, siginfo_t*, void* context) {
  take(*g_handler_trace);
  std::uintptr_t frames[kMax];
  const std::size_t count = penumbra::stacks::unwind_ucontext(context, frames, kMax);
  g_context_trace->assign(frames, frames + count);
}

void check_signal(int flags) {
  struct sigaction action = {};
  struct sigaction before;
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | flags;
  sigaction(SIGUSR1, &action, &before);
  Trace trace;
  std::vector<std::uintptr_t> from_context;
  g_handler_trace = &trace;
  g_context_trace = &from_context;
  for (int round = 0; round < 2; ++round) {
    recurse(5, [] { raise(SIGUSR1); });
    expect_same(trace);
    // The interrupted code's own stack is the outer part of the handler's.
    ASSERT_GT(trace.ours.size(), from_context.size());
    EXPECT_TRUE(std::equal(from_context.rbegin(), from_context.rend(), trace.ours.rbegin()));
    EXPECT_GE(from_context.size(), 8u);
    EXPECT_NE(from_context.back(), kBrokenStack);
  }
  sigaction(SIGUSR1, &before, nullptr);
}

TEST(Unwind, CrossesSignalFrames) {
  check_signal(0);
}

TEST(Unwind, CrossesFromAnAlternateSignalStack) {
  std::vector<char> memory(1 << 16);
  stack_t alternate = {};
  alternate.ss_sp = memory.data();
  alternate.ss_size = memory.size();
  stack_t before;
  ASSERT_EQ(sigaltstack(&alternate, &before), 0);
  check_signal(SA_ONSTACK);
  sigaltstack(&before, nullptr);
}

TEST(Unwind, EndsCleanlyInThreads) {
  std::thread([] {
    for (int round = 0; round < 600; ++round) {  // past the walk at which a thread looks up its own stack
      Trace trace;
      recurse(3, [&] { take(trace); });
      ASSERT_EQ(trace.ours, trace.theirs);
    }
  }).join();
}

// The stack ends at the last byte of a mapping: what lies behind must not be read.
void* at_the_edge(void* argument) {
  take(*static_cast<Trace*>(argument));
  return nullptr;
}

TEST(Unwind, ReadsNothingBehindAThreadsStack) {
  constexpr std::size_t kBytes = 1 << 17;
  auto* memory =
      static_cast<char*>(mmap(nullptr, kBytes + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  ASSERT_EQ(mprotect(memory + kBytes, 4096, PROT_NONE), 0);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  ASSERT_EQ(pthread_attr_setstack(&attributes, memory, kBytes), 0);
  Trace trace;
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, &attributes, at_the_edge, &trace), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  EXPECT_EQ(trace.ours, trace.theirs);
  munmap(memory, kBytes + 4096);
}

ucontext_t g_main_context;
ucontext_t g_coroutine_context;
Trace* g_coroutine_trace = nullptr;

void coroutine() {
  recurse(4, [] { take(*g_coroutine_trace); });
  swapcontext(&g_coroutine_context, &g_main_context);
}

TEST(Unwind, FollowsCoroutineStacksToTheirEnd) {
  constexpr std::size_t kBytes = 1 << 16;
  auto* memory =
      static_cast<char*>(mmap(nullptr, kBytes + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  ASSERT_EQ(mprotect(memory + kBytes, 4096, PROT_NONE), 0);
  Trace trace;
  g_coroutine_trace = &trace;
  getcontext(&g_coroutine_context);
  g_coroutine_context.uc_stack.ss_sp = memory;
  g_coroutine_context.uc_stack.ss_size = kBytes;
  g_coroutine_context.uc_link = &g_main_context;
  makecontext(&g_coroutine_context, coroutine, 0);
  swapcontext(&g_main_context, &g_coroutine_context);
  EXPECT_EQ(trace.ours, trace.theirs);
  EXPECT_GE(trace.ours.size(), 6u);
  munmap(memory, kBytes + 4096);
}

// After sealing (process ruling 18) the probes must not need a forbidden call. In a child, since sealing is for good.
TEST(Unwind, FollowsForeignStacksWhenSealed) {
  const pid_t child = fork();
  if (child == 0) {
    penumbra::os::seal();
    static Trace trace;
    g_coroutine_trace = &trace;
    static char memory[1 << 16];
    getcontext(&g_coroutine_context);
    g_coroutine_context.uc_stack.ss_sp = memory;
    g_coroutine_context.uc_stack.ss_size = sizeof memory;
    g_coroutine_context.uc_link = &g_main_context;
    makecontext(&g_coroutine_context, coroutine, 0);
    swapcontext(&g_main_context, &g_coroutine_context);
    _exit(trace.ours == trace.theirs && trace.ours.size() >= 6 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(Unwind, WorksInsideAndAfterExceptions) {
  Trace inside;
  try {
    recurse(3, [] { throw std::runtime_error("x"); });
  } catch (const std::exception&) {
    take(inside);
  }
  expect_same(inside);
  Trace after;
  take(after);
  expect_same(after);
}

TEST(Unwind, WorksAfterLongjmp) {
  jmp_buf back;
  volatile int jumps = 0;
  if (setjmp(back) == 0) {
    jumps = 1;
    recurse(8, [&] { longjmp(back, 1); });
  }
  EXPECT_EQ(jumps, 1);
  Trace trace;
  recurse(2, [&] { take(trace); });
  expect_same(trace);
}

int compare_and_take(const void* a, const void* b, void* trace) {
  take(*static_cast<Trace*>(trace));
  return *static_cast<const int*>(a) - *static_cast<const int*>(b);
}

TEST(Unwind, FollowsFramesOfLibc) {
  int values[] = {3, 1, 2};
  Trace trace;
  qsort_r(values, 3, sizeof(int), compare_and_take, &trace);
  expect_same(trace);
}

Trace* g_binding_trace = nullptr;
std::vector<std::uintptr_t> g_binding_recorded;

void record_during_binding() {
  take(*g_binding_trace);
  const CodeContext here = PENUMBRA_CALLER();
  g_binding_recorded.resize(kMax);
  const penumbra::StackId id = penumbra::stacks::record(here, kMax);
  g_binding_recorded.resize(penumbra::stacks::depot_get(id, g_binding_recorded.data(), kMax));
}

// The loader's trampoline keeps its CFA in rbx, which a CodeContext does not hold: the walk must fetch it.
TEST(Unwind, FollowsALazyBindingWithoutKnowingRbx) {
  for (int round = 0; round < 3; ++round) {
    void* library = dlopen(PENUMBRA_LAZY_LIBRARY, RTLD_LAZY | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    Trace trace;
    g_binding_trace = &trace;
    *static_cast<void (**)()>(dlsym(library, "during_binding")) = record_during_binding;
    EXPECT_EQ(reinterpret_cast<int (*)()>(dlsym(library, "call_chosen"))(), 6);
    expect_same(trace);
    // From one frame further out.
    EXPECT_EQ(g_binding_recorded, std::vector<std::uintptr_t>(trace.ours.begin() + 1, trace.ours.end()));
    dlclose(library);
  }
}

// A call through a null pointer: the pc is nowhere, the caller is on top of the stack.
TEST(Unwind, FindsTheCallerOfACallToNowhere) {
  static std::vector<std::uintptr_t> found;
  static sigjmp_buf back;
  struct sigaction action = {};
  struct sigaction before;
  action.sa_flags = SA_SIGINFO;
  action.sa_sigaction = [](int, siginfo_t*, void* context) {
    std::uintptr_t frames[kMax];
    const std::size_t count = penumbra::stacks::unwind_ucontext(context, frames, kMax);
    found.assign(frames, frames + count);
    siglongjmp(back, 1);
  };
  sigaction(SIGSEGV, &action, &before);
  Trace here;
  take(here);
  if (sigsetjmp(back, 1) == 0) {
    void (*volatile nowhere)() = nullptr;
    nowhere();
  }
  sigaction(SIGSEGV, &before, nullptr);
  ASSERT_GE(found.size(), 3u);
  EXPECT_EQ(found[0], 0u);
  // found[1] is in this function, then everything as from here.
  EXPECT_TRUE(std::equal(found.begin() + 2, found.end(), here.ours.begin() + 1, here.ours.end()));
}

// Code without call frame information that keeps frame pointers, as JIT compilers write it: push rbp; mov rbp,rsp;
// sub rsp,16; call rdi; leave; ret.
constexpr unsigned char kJitCode[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x10, 0xff, 0xd7, 0xc9, 0xc3};

void call_take_for_jit();
Trace* g_jit_trace = nullptr;

__attribute__((noinline)) void call_take_for_jit() {
  take(*g_jit_trace);
  asm volatile("");
}

TEST(Unwind, StepsOverGeneratedCodeByItsFramePointers) {
  void* code = mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(code, MAP_FAILED);
  std::memset(code, 0xcc, 4096);
  std::memcpy(static_cast<char*>(code) + 64, kJitCode, sizeof kJitCode);
  Trace trace;
  g_jit_trace = &trace;
  const auto generated = reinterpret_cast<void (*)(void (*)())>(static_cast<char*>(code) + 64);
  generated(call_take_for_jit);
  asm volatile("");
  Trace here;
  take(here);
  const auto start = reinterpret_cast<std::uintptr_t>(code);
  ASSERT_GE(trace.ours.size(), 4u);
  EXPECT_EQ(trace.ours[1], start + 64 + 10);
  EXPECT_EQ(std::vector<std::uintptr_t>(trace.ours.begin() + 3, trace.ours.end()),
            std::vector<std::uintptr_t>(here.ours.begin() + 1, here.ours.end()));
  munmap(code, 4096);
}

TEST(Unwind, MarksAStackThatCannotBeFollowed) {
  std::uintptr_t frames[kMax];
  const CodeContext nowhere{0x1234, 0x5678, 0x9abc};
  const std::size_t count = penumbra::stacks::unwind(nowhere, frames, kMax);
  ASSERT_EQ(count, 2u);
  EXPECT_EQ(frames[0], 0x1234u);
  EXPECT_EQ(frames[1], kBrokenStack);
}

}  // namespace
