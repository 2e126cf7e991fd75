// Every instruction that a call executes, one by one: from each, unwinding must come out where the call was made.
//
// The trap flag stops the thread after each instruction; the handler unwinds from the context it gets. Prologues,
// epilogues, leaf functions, PLT entries, the loader's lazy binding and string functions are all on the way.
#include <dlfcn.h>
#include <signal.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "runtime/base/config.h"
#include "runtime/stacks/stacks.h"
#include "runtime/stacks/unwind.h"

#include <gtest/gtest.h>

namespace {

using penumbra::kMaxStackFrames;
using penumbra::stacks::kBrokenStack;

constexpr greg_t kTrapFlag = 0x100;

std::vector<std::uintptr_t> g_expected;  // the callers of whoever starts the stepping, innermost first
volatile bool g_stop = false;
volatile unsigned long g_steps = 0;
volatile unsigned long g_wrong = 0;
std::uintptr_t g_first_wrong[kMaxStackFrames + 1];

constexpr unsigned long kStepsFromHandler = 3000;

bool comes_out(const std::uintptr_t* frames, std::size_t count) {
  const std::size_t outer = g_expected.size();
  return count > outer && std::equal(frames + count - outer, frames + count, g_expected.begin());
}

void on_trap(int, siginfo_t*, void* context) {
  auto* const state = static_cast<ucontext_t*>(context);
  if (g_stop) {
    state->uc_mcontext.gregs[REG_EFL] &= ~kTrapFlag;
    return;
  }
  state->uc_mcontext.gregs[REG_EFL] |= kTrapFlag;
  g_steps = g_steps + 1;
  std::uintptr_t frames[kMaxStackFrames];
  std::size_t count = penumbra::stacks::unwind_ucontext(context, frames, kMaxStackFrames);
  bool good = comes_out(frames, count);
  // And from the handler's own frame, over the kernel's; both ways, as long as that is quick.
  if (good && g_steps < kStepsFromHandler) {
    count = penumbra::stacks::unwind(PENUMBRA_CALLER(), frames, kMaxStackFrames);
    good = comes_out(frames, count);
  }
  if (good && g_steps < kStepsFromHandler) {
    count = penumbra::stacks::unwind_by_rules(PENUMBRA_CALLER(), frames, kMaxStackFrames);
    good = comes_out(frames, count);
  }
  if (!good) {
    if (g_wrong == 0) {
      std::copy(frames, frames + count, g_first_wrong);
      g_first_wrong[count] = 0;
    }
    g_wrong = g_wrong + 1;
  }
}

// Steps through `body`. Its frames are those between here and the body; what is expected are this function's callers.
// `unfollowable` instructions may come out elsewhere.
template <class Body>
__attribute__((noinline)) void step_through(const char* what, unsigned long at_least, Body body,
                                            unsigned long unfollowable = 0) {
  std::uintptr_t frames[kMaxStackFrames];
  const std::size_t count = penumbra::stacks::unwind(PENUMBRA_CALLER(), frames, kMaxStackFrames);
  g_expected.assign(frames, frames + count);
  ASSERT_GE(count, 3u);
  ASSERT_NE(frames[count - 1], kBrokenStack);
  struct sigaction action = {};
  struct sigaction before;
  action.sa_sigaction = on_trap;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGTRAP, &action, &before);
  g_stop = false;
  g_steps = 0;
  g_wrong = 0;
  raise(SIGTRAP);
  body();
  g_stop = true;
  raise(SIGTRAP);
  sigaction(SIGTRAP, &before, nullptr);
  EXPECT_GE(g_steps, at_least) << what;
  EXPECT_LE(g_wrong, unfollowable) << what << " of " << g_steps << " steps";
  if (g_wrong > unfollowable) {
    for (const std::uintptr_t frame : g_first_wrong) {
      if (frame == 0) break;
      Dl_info info{};
      dladdr(reinterpret_cast<void*>(frame), &info);
      std::printf(
          "  %lx %s %s+0x%lx\n", frame, info.dli_fname != nullptr ? info.dli_fname : "?",
          info.dli_sname != nullptr ? info.dli_sname : "?",
          frame - reinterpret_cast<std::uintptr_t>(info.dli_saddr != nullptr ? info.dli_saddr : info.dli_fbase));
    }
  }
}

int compare_ints(const void* a, const void* b) {
  return *static_cast<const int*>(a) - *static_cast<const int*>(b);
}

TEST(Step, EveryInstructionOfASortComesOutAtItsCaller) {
  step_through("qsort", 300, [] {
    int values[] = {4, 2, 9, 1, 7};
    std::qsort(values, 5, sizeof(int), compare_ints);
  });
}

TEST(Step, EveryInstructionOfFormattedOutputComesOutAtItsCaller) {
  step_through("snprintf", 1000, [] {
    char text[64];
    std::snprintf(text, sizeof text, "%d %s %.3f", 42, "words", 2.5);
  });
}

TEST(Step, EveryInstructionOfMallocAndFreeComesOutAtItsCaller) {
  step_through("malloc", 50, [] {
    void* volatile block = std::malloc(100000);
    std::free(block);
  });
}

TEST(Step, EveryInstructionOfStringFunctionsComesOutAtItsCaller) {
  step_through("string functions", 40, [] {
    volatile char text[100];
    std::memset(const_cast<char*>(text), 'a', 99);
    text[99] = 0;
    volatile std::size_t length = std::strlen(const_cast<char*>(text));
    volatile const char* found = std::strchr(const_cast<char*>(text), 'b');
    (void)length;
    (void)found;
  });
}

// The last instruction of _Unwind_RaiseException runs with the stack pointer of the landing pad's frame already; no rule
// can say so, and libunwind and gdb fail there too.
TEST(Step, EveryInstructionOfAnExceptionComesOutAtItsCaller) {
  step_through(
      "exception", 3000,
      [] {
        try {
          throw 1;
        } catch (int) {
        }
      },
      1);
}

// A symbol bound at its first call: the PLT, the loader's trampoline (its CFA is in rbx) and the look-up.
TEST(Step, EveryInstructionOfALazyBindingComesOutAtItsCaller) {
  void* library = dlopen(PENUMBRA_LAZY_LIBRARY, RTLD_LAZY | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto call_lazily = reinterpret_cast<int (*)(const char*)>(dlsym(library, "call_lazily"));
  ASSERT_NE(call_lazily, nullptr);
  volatile int value = 0;
  step_through("lazy binding", 500, [&] { value = call_lazily("77"); });
  EXPECT_EQ(value, 77);
  dlclose(library);
}

}  // namespace
