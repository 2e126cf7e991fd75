// What the program sets is what it is shown, and a handler's thunk is its own for good. No signal is sent here; the
// end-to-end tests do that.
#include "runtime/signals/dispositions.h"

#include <gtest/gtest.h>
#include <errno.h>
#include <ucontext.h>

#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/os_linux.h"

namespace penumbra::signals {
namespace {

void plain(int) {}
void with_info(int, siginfo_t*, void*) {}

struct sigaction action(sighandler_t handler, int flags) {
  struct sigaction a {};
  a.sa_handler = handler;
  a.sa_flags = flags;
  sigaddset(&a.sa_mask, SIGUSR1);
  return a;
}

TEST(Dispositions, TheProgramIsShownWhatItSet) {
  const int flag_sets[] = {0,
                           SA_SIGINFO,
                           SA_ONSTACK,
                           SA_RESTART | SA_NODEFER,
                           SA_SIGINFO | SA_ONSTACK | SA_RESTART,
                           static_cast<int>(SA_RESETHAND),
                           static_cast<int>(SA_RESETHAND) | SA_SIGINFO};
  for (const sighandler_t handler : {SIG_DFL, SIG_IGN, static_cast<sighandler_t>(plain),
                                     reinterpret_cast<sighandler_t>(reinterpret_cast<void*>(with_info))}) {
    for (const int flags : flag_sets) {
      const struct sigaction wanted = action(handler, flags);
      const struct sigaction shown = to_program(SIGSEGV, to_kernel(SIGSEGV, wanted));
      EXPECT_EQ(shown.sa_handler, wanted.sa_handler) << flags;
      EXPECT_EQ(shown.sa_flags, wanted.sa_flags) << flags;
      EXPECT_EQ(sigismember(&shown.sa_mask, SIGUSR1), 1);
    }
  }
}

TEST(Dispositions, AnIgnoredSignalIsIgnoredByTheKernelItself) {
  EXPECT_EQ(to_kernel(SIGSEGV, action(SIG_IGN, 0)).sa_handler, SIG_IGN) << "exec hands it on";
}

TEST(Dispositions, TheKernelGetsAThunkWithSiginfoAndTheProgramsOwnStackChoice) {
  const struct sigaction held = to_kernel(SIGSEGV, action(plain, 0));
  EXPECT_NE(held.sa_handler, static_cast<sighandler_t>(plain));
  EXPECT_NE(held.sa_flags & SA_SIGINFO, 0);
  EXPECT_EQ(held.sa_flags & SA_ONSTACK, 0);
  EXPECT_NE(to_kernel(SIGSEGV, action(SIG_DFL, 0)).sa_flags & SA_ONSTACK, 0)
      << "an overflowed stack has no room for us";
}

TEST(Dispositions, AOneShotHandlerIsUsedUpByUsNotByTheKernel) {
  const struct sigaction held = to_kernel(SIGSEGV, action(plain, static_cast<int>(SA_RESETHAND)));
  EXPECT_EQ(held.sa_flags & static_cast<int>(SA_RESETHAND), 0);
}

TEST(Dispositions, TheSameHandlerHasTheSameThunkAndOthersHaveOthers) {
  EXPECT_EQ(to_kernel(SIGSEGV, action(plain, 0)).sa_handler,
            to_kernel(SIGSEGV, action(plain, SA_RESTART)).sa_handler);
  EXPECT_NE(to_kernel(SIGSEGV, action(plain, 0)).sa_handler,
            to_kernel(SIGSEGV, action(plain, SA_SIGINFO)).sa_handler);
  EXPECT_NE(to_kernel(SIGSEGV, action(plain, 0)).sa_handler, to_kernel(SIGSEGV, action(SIG_DFL, 0)).sa_handler);
}

TEST(Dispositions, ASignalNobodyTouchedShowsTheBareDefault) {
  const struct sigaction shown = to_program(SIGSEGV, untouched_default());
  EXPECT_EQ(shown.sa_handler, SIG_DFL);
  EXPECT_EQ(shown.sa_flags, 0);
}

TEST(Dispositions, AHandlerOfSomebodyElseIsShownAsItIs) {
  const struct sigaction foreign = action(plain, SA_SIGINFO | SA_RESTART);
  EXPECT_EQ(to_program(SIGSEGV, foreign).sa_handler, static_cast<sighandler_t>(plain));
  EXPECT_EQ(to_program(SIGSEGV, foreign).sa_flags, SA_SIGINFO | SA_RESTART);
}

TEST(Dispositions, InterposedTwiceIsInterposedOnce) {
  for (const int signal : {SIGSEGV, SIGUSR1}) {
    for (const int flags : {0, SA_SIGINFO, static_cast<int>(SA_RESETHAND)}) {
      const struct sigaction once = to_kernel(signal, action(plain, flags));
      const struct sigaction twice = to_kernel(signal, once);
      EXPECT_EQ(once.sa_handler, twice.sa_handler);
      EXPECT_EQ(once.sa_flags, twice.sa_flags);
      const struct sigaction shown = to_program(signal, to_program(signal, once));
      EXPECT_EQ(shown.sa_handler, static_cast<sighandler_t>(plain));
      EXPECT_EQ(shown.sa_flags, flags);
    }
  }
}

TEST(Dispositions, OfAnUnwatchedSignalOnlyTheHandlersAddressChanges) {
  for (const int flags : {0, SA_SIGINFO, SA_ONSTACK | SA_RESTART, static_cast<int>(SA_RESETHAND)}) {
    const struct sigaction held = to_kernel(SIGUSR1, action(plain, flags));
    EXPECT_NE(held.sa_handler, static_cast<sighandler_t>(plain));
    EXPECT_EQ(held.sa_flags, flags);
    EXPECT_EQ(to_program(SIGUSR1, held).sa_handler, static_cast<sighandler_t>(plain));
  }
  EXPECT_EQ(to_kernel(SIGUSR1, action(SIG_DFL, 0)).sa_handler, SIG_DFL) << "the kernel's own";
}

TEST(Dispositions, OtherSignalsAreCoveredOnceCodeHasMoved) {
  EXPECT_TRUE(is_covered(SIGSEGV));
  EXPECT_FALSE(is_covered(SIGUSR1));
  cover_all_signals();
  EXPECT_TRUE(is_covered(SIGUSR1));
}

// More than a few pages of thunks.
constexpr std::size_t kMany = 4 * kSlots;

TEST(Dispositions, EveryHandlerHasAThunkHoweverManyThereAre) {
  std::vector<char> handlers(kMany);
  std::set<sighandler_t> thunks;
  for (char& address : handlers) {
    const struct sigaction wanted = action(reinterpret_cast<sighandler_t>(&address), SA_RESTART);
    const struct sigaction held = to_kernel(SIGSEGV, wanted);
    EXPECT_NE(held.sa_handler, wanted.sa_handler);
    EXPECT_TRUE(thunks.insert(held.sa_handler).second) << "its own";
    EXPECT_EQ(to_program(SIGSEGV, held).sa_handler, wanted.sa_handler);
    EXPECT_EQ(to_program(SIGSEGV, held).sa_flags, wanted.sa_flags);
    EXPECT_EQ(to_kernel(SIGSEGV, held).sa_handler, held.sa_handler) << "interposed once";
    EXPECT_EQ(to_kernel(SIGSEGV, wanted).sa_handler, held.sa_handler) << "for good";
  }
}

struct Called {
  int handler = -1;
  int signal = 0;
  int code = 0;
};

Called g_called;

template <int Number>
void remember(int signal, siginfo_t* info, void*) {
  g_called = {Number, signal, info->si_code};
}

template <int... Number>
std::vector<Called> call_all(std::integer_sequence<int, Number...>) {
  std::vector<Called> calls;
  for (const auto handler : {remember<Number>...}) {
    struct sigaction wanted {};
    wanted.sa_sigaction = handler;
    wanted.sa_flags = SA_SIGINFO;
    const struct sigaction held = to_kernel(SIGUSR1, wanted);
    siginfo_t info{};
    info.si_code = 77;
    ucontext_t context{};
    held.sa_sigaction(SIGUSR1, &info, &context);
    calls.push_back(g_called);
  }
  return calls;
}

TEST(Dispositions, EveryThunkCallsItsHandlerWithWhatTheKernelSaid) {
  const std::vector<Called> calls = call_all(std::make_integer_sequence<int, 2 * kSlots>());
  for (int n = 0; n < static_cast<int>(calls.size()); ++n) {
    EXPECT_EQ(calls[n].handler, n);
    EXPECT_EQ(calls[n].signal, SIGUSR1);
    EXPECT_EQ(calls[n].code, 77);
  }
}

TEST(Dispositions, ThreadsThatSetHandlersAtOnceGetTheSameThunks) {
  std::vector<char> handlers(kMany);
  std::vector<sighandler_t> held[4];
  std::vector<std::thread> threads;
  for (auto& own : held) {
    threads.emplace_back([&] {
      for (char& address : handlers) {
        own.push_back(to_kernel(SIGUSR2, action(reinterpret_cast<sighandler_t>(&address), 0)).sa_handler);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t n = 0; n < handlers.size(); ++n) {
    for (const auto& own : held) {
      EXPECT_EQ(to_program(SIGUSR2, action(own[n], 0)).sa_handler, reinterpret_cast<sighandler_t>(&handlers[n]));
    }
  }
}

TEST(Dispositions, WithoutMemoryOrCodeAHandlerGoesToTheKernelUnchanged) {
  // Addresses that have no thunk yet, more of them than there is room for without memory.
  static char handlers[2][2 * kSlots];
  const os::FailureInjector injectors[] = {
      [](os::MemoryCall call) { return call == os::MemoryCall::kMap ? ENOMEM : 0; },
      [](os::MemoryCall call) { return call == os::MemoryCall::kProtect ? EACCES : 0; }};
  for (int n = 0; n < 2; ++n) {
    os::set_failure_injector_test_only(injectors[n]);
    struct sigaction held {};
    for (char& address : handlers[n]) held = to_kernel(SIGSEGV, action(reinterpret_cast<sighandler_t>(&address), 0));
    os::set_failure_injector_test_only(nullptr);
    EXPECT_EQ(held.sa_handler, reinterpret_cast<sighandler_t>(&handlers[n][2 * kSlots - 1]));
    EXPECT_EQ(held.sa_flags, 0);
    EXPECT_NE(to_kernel(SIGSEGV, action(plain, 0)).sa_handler, static_cast<sighandler_t>(plain))
        << "earlier ones keep theirs";
  }
}

}  // namespace
}  // namespace penumbra::signals
