// The outline checks against the byte loop that defines accessibility: every size, every begin and every shadow of
// three granules out of the values that matter; and what a fault says about its caller.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "instrument/abi/abi.h"
#include "shadow/address_map.h"
#include "shadow/check.h"
#include "shadow/poison.h"
#include "tests/abi/fault_log.h"
#include "tests/support/shadow_map.h"

extern "C" {
#define DECLARE(bytes)                                \
  void __asan_load##bytes##_noabort(std::uintptr_t);  \
  void __asan_store##bytes##_noabort(std::uintptr_t); \
  void __asan_load##bytes(std::uintptr_t);            \
  void __asan_store##bytes(std::uintptr_t);           \
  void __asan_report_load##bytes##_noabort(std::uintptr_t);
DECLARE(1)
DECLARE(2)
DECLARE(4)
DECLARE(8)
DECLARE(16)
#undef DECLARE
void __asan_loadN_noabort(std::uintptr_t, std::size_t);
void __asan_storeN_noabort(std::uintptr_t, std::size_t);
void __asan_report_store_n_noabort(std::uintptr_t, std::size_t);
void* __asan_memcpy(void*, const void*, std::size_t);
void* __asan_memset(void*, int, std::size_t);
}

namespace penumbra::abi {
namespace {

class OutlineChecks : public ::testing::Test {
 protected:
  static constexpr std::size_t kBytes = 1 << 16;

  static void SetUpTestSuite() {
    ASSERT_TRUE(reserve_test_map().ok());
    start();
  }

  void SetUp() override {
    memory_ = AppAddr(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }

  void TearDown() override {
    shadow::clear_stale(memory_, kBytes);
    munmap(memory_.ptr<void>(), kBytes);
  }

  void set(std::size_t granule, std::uint8_t value) { shadow::store_byte(memory_ + granule * 8, value); }

  AppAddr memory_;
  FaultLog log_;
};

struct Sized {
  std::size_t bytes;
  void (*load)(std::uintptr_t);
  void (*store)(std::uintptr_t);
};

constexpr Sized kSized[] = {
    {1, __asan_load1_noabort, __asan_store1_noabort},    {2, __asan_load2_noabort, __asan_store2_noabort},
    {4, __asan_load4_noabort, __asan_store4_noabort},    {8, __asan_load8_noabort, __asan_store8_noabort},
    {16, __asan_load16_noabort, __asan_store16_noabort},
};

TEST_F(OutlineChecks, EverySizeAgreesWithTheByteLoopOnEveryGranuleMix) {
  const std::uint8_t values[] = {0, 1, 3, 4, 7, 0x80, 0xf8, 0xff};
  for (std::uint8_t a : values) {
    for (std::uint8_t b : values) {
      for (std::uint8_t c : values) {
        set(0, a);
        set(1, b);
        set(2, c);
        for (std::size_t begin = 0; begin < 16; ++begin) {
          const AppAddr addr = memory_ + begin;
          for (const Sized& check : kSized) {
            const AppAddr bad = shadow::first_bad_reference(addr, check.bytes);
            check.load(addr.value);
            check.store(addr.value);
            ASSERT_EQ(log_.faults().size(), bad == shadow::kNoBadByte ? 0u : 2u)
                << +a << ' ' << +b << ' ' << +c << " begin " << begin << " bytes " << check.bytes;
            if (bad != shadow::kNoBadByte) {
              ASSERT_EQ(log_.faults()[0].bad, bad);
              ASSERT_FALSE(log_.faults()[0].is_write);
              ASSERT_TRUE(log_.faults()[1].is_write);
              ASSERT_EQ(log_.faults()[1].size, check.bytes);
            }
            log_.faults().clear();
          }
          for (std::size_t bytes = 0; bytes <= 24 - begin; ++bytes) {
            const AppAddr bad = shadow::first_bad_reference(addr, bytes);
            __asan_loadN_noabort(addr.value, bytes);
            __asan_storeN_noabort(addr.value, bytes);
            ASSERT_EQ(log_.faults().size(), bad == shadow::kNoBadByte ? 0u : 2u)
                << +a << ' ' << +b << ' ' << +c << " begin " << begin << " N " << bytes;
            if (bad != shadow::kNoBadByte) {
              ASSERT_EQ(log_.faults()[0].bad, bad);
            }
            log_.faults().clear();
          }
        }
      }
    }
  }
}

// A span of three units within unused memory, whose middle one is not there; its shadow reads 0 throughout.
class OutlineChecksInSpan : public OutlineChecks {
 protected:
  static constexpr std::size_t kUnit = shadow::kUnitSize;

  void SetUp() override {
    OutlineChecks::SetUp();
    reserved_ = AppAddr(mmap(nullptr, 5 * kUnit, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    span_ = AppAddr(round_up(reserved_.value + 64, kUnit));
    gone_ = span_ + kUnit;
    shadow::set_span({span_, span_ + 3 * kUnit, [](AppAddr begin, AppAddr end) {
                        if (begin < gone_ + kUnit && end > gone_) return begin < gone_ ? gone_ : begin;
                        return shadow::kNoBadByte;
                      }});
    start();
  }

  void TearDown() override {
    shadow::set_span({});
    start();
    munmap(reserved_.ptr<void>(), 5 * kUnit);
    OutlineChecks::TearDown();
  }

  AppAddr reserved_;
  AppAddr span_;
  inline static AppAddr gone_;
};

TEST_F(OutlineChecksInSpan, EmptyUnitsAreBadThoughTheirShadowReadsZero) {
  for (const AppAddr edge : {span_, gone_, gone_ + 1000, gone_ + kUnit, span_ + 3 * kUnit}) {
    for (AppAddr at = edge - 70; at < edge + 10; at = at + 1) {
      for (const Sized& check : kSized) {
        const AppAddr bad = shadow::first_bad_reference(at, check.bytes);
        check.load(at.value);
        check.store(at.value);
        ASSERT_EQ(log_.faults().size(), bad == shadow::kNoBadByte ? 0u : 2u)
            << at - span_ << " bytes " << check.bytes;
        if (!log_.faults().empty()) {
          ASSERT_EQ(log_.faults()[1].bad, bad);
          ASSERT_EQ(log_.faults()[1].size, check.bytes);
          ASSERT_TRUE(log_.faults()[1].is_write);
        }
        log_.faults().clear();
      }
      for (const std::size_t bytes : {3, 24, 63, 64, 65}) {
        const AppAddr bad = shadow::first_bad_reference(at, bytes);
        __asan_loadN_noabort(at.value, bytes);
        ASSERT_EQ(log_.faults().size(), bad == shadow::kNoBadByte ? 0u : 1u) << at - span_ << " N " << bytes;
        log_.faults().clear();
      }
    }
  }
}

TEST_F(OutlineChecks, ALongRangeIsSearchedToItsEnd) {
  set(5000, 0xf7);
  __asan_storeN_noabort(memory_.value, 40000);
  __asan_loadN_noabort(memory_.value, 40001);
  const Fault fault = FaultLog::take_one();
  EXPECT_EQ(fault.bad, memory_ + 40000);
  EXPECT_EQ(fault.size, 40001u);
}

TEST_F(OutlineChecks, AddressesWithoutShadowAreReportedAndDoNotCrash) {
  const std::uintptr_t wild[] = {std::uintptr_t{1} << 47, std::uintptr_t{0xdead} << 48, ~std::uintptr_t{0} - 3,
                                 kUserAddressEnd - 4, ~std::uintptr_t{0}};
  for (std::uintptr_t address : wild) {
    __asan_load8_noabort(address);
    EXPECT_EQ(log_.faults().size(), 1u) << std::hex << address;
    log_.faults().clear();
  }
}

void resume_in_caller(int, siginfo_t*, void* ucontext) {
  if (!skip_faulting_check(ucontext)) _exit(3);
}

TEST_F(OutlineChecks, ACheckThatFaultsOnTheShadowItselfIsResumedInItsCaller) {
  if (!shadow::is_direct()) GTEST_SKIP() << "only the direct map has an image that faults";
  struct sigaction action {};
  struct sigaction before {};
  action.sa_sigaction = resume_in_caller;
  action.sa_flags = SA_SIGINFO;
  ASSERT_EQ(sigaction(SIGSEGV, &action, &before), 0);
  for (const Sized& check : kSized) {
    check.load(shadow::kShadowOffset + 64);
    check.store(std::uintptr_t{1} << 40);
  }
  __asan_loadN_noabort(std::uintptr_t{1} << 40, 24);
  ASSERT_EQ(sigaction(SIGSEGV, &before, nullptr), 0);
}

TEST_F(OutlineChecks, ARangeThatWrapsIsItsOwnKindOfFault) {
  __asan_loadN_noabort(memory_.value, ~std::size_t{0} - 1);
  EXPECT_EQ(FaultLog::take_one().kind, FaultKind::kWrappedAccess);
}

// The address of the instruction behind a call in this very function is what a report must start at.
__attribute__((noinline)) void store_through(void (*check)(std::uintptr_t), std::uintptr_t address) {
  check(address);
  asm volatile("" ::: "memory");  // keeps the call from becoming a jump
}

TEST_F(OutlineChecks, AFaultNamesTheCallerOfTheCheck) {
  set(0, 0xff);
  const auto begin = reinterpret_cast<std::uintptr_t>(&store_through);
  for (auto* check : {__asan_store8_noabort, __asan_load1_noabort, __asan_report_load4_noabort}) {
    store_through(check, memory_.value);
    const Fault fault = FaultLog::take_one();
    EXPECT_GT(fault.context.pc, begin);
    EXPECT_LT(fault.context.pc, begin + 64);
    const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    EXPECT_LT(fault.context.sp, here);
    EXPECT_GT(fault.context.sp, here - 512);
  }
}

TEST_F(OutlineChecks, AReportIsRaisedEvenIfTheByteIsFineByNow) {
  __asan_report_store_n_noabort(memory_.value + 3, 24);
  const Fault fault = FaultLog::take_one();
  EXPECT_TRUE(fault.is_write);
  EXPECT_EQ(fault.size, 24u);
  EXPECT_EQ(fault.bad, memory_ + 3);
}

TEST_F(OutlineChecks, MemoryCallsJudgeBothRangesAndThenRun) {
  auto* bytes = memory_.ptr<char>();
  bytes[64] = 'x';
  set(1, 0xfb);
  __asan_memcpy(bytes, bytes + 64, 9);
  const Fault fault = FaultLog::take_one();
  EXPECT_TRUE(fault.is_write);
  EXPECT_EQ(fault.bad, memory_ + 8);
  EXPECT_EQ(bytes[0], 'x');
  __asan_memset(bytes, 'y', 8);
  EXPECT_EQ(log_.faults().size(), 0u);
  EXPECT_EQ(bytes[7], 'y');
}

TEST_F(OutlineChecks, AbortFormsDoNotComeBackDeathTest) {
  set(0, 0xff);
  EXPECT_EXIT(__asan_store4(memory_.value), ::testing::ExitedWithCode(1), "");
  __asan_store4(memory_.value + 8);  // nothing wrong: returns
}

}  // namespace
}  // namespace penumbra::abi
