// A block of accessible bytes with poison on both sides, and a record of the faults that calls on it raise.
//
//     |  poison, filled with 'x'  | begin ... end |  poison, filled with 'x', a zero far behind  |
//
// zone: hosted
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <string>

#include "gtest/gtest.h"
#include "instrument/libc/init.h"
#include "runtime/base/fault.h"
#include "shadow/address_map.h"
#include "shadow/check.h"
#include "shadow/poison.h"
#include "tests/support/shadow_map.h"

namespace penumbra::libc::testing {

// Faults since clear(), the first sixteen; kept without malloc, as the hook runs inside interposed calls.
class FaultRecord {
 public:
  static void clear() { count_ = 0; }
  static std::size_t count() { return count_; }
  static const Fault& at(std::size_t i) { return faults_[i]; }

  static void hook(const Fault& fault) {
    if (count_ < kKept) faults_[count_] = fault;
    ++count_;
  }

 private:
  static constexpr std::size_t kKept = 16;
  static inline Fault faults_[kKept];
  static inline std::size_t count_ = 0;
};

class PoisonedBlock {
 public:
  static constexpr std::size_t kMargin = 4096;
  static constexpr std::size_t kMost = 8192;

  // begin lies `offset` bytes (0..7) into an accessible granule.
  PoisonedBlock(std::size_t bytes, std::size_t offset) : bytes_(bytes) {
    static char* const memory = map();
    // By hand: a block that still lives has poisoned this memory.
    for (std::size_t i = 0; i < kTotal; ++i) static_cast<volatile char*>(memory)[i] = 'x';
    memory[kTotal - 1] = '\0';
    for (std::size_t i = 0; i < 4; ++i) memory[kTotal - 5 + i] = '\0';  // a wide terminator as well
    const AppAddr base(memory);
    shadow::poison(base, kTotal, shadow::ShadowTag::kHeapRightRedzone);
    shadow::unpoison(base + kMargin, offset + bytes);
    begin_ = memory + kMargin + offset;
  }

  ~PoisonedBlock() { shadow::clear_stale(AppAddr(begin_ - kMargin - 8), kTotal + 8); }

  char* begin() const { return begin_; }
  char* end() const { return begin_ + bytes_; }
  std::size_t bytes() const { return bytes_; }

 private:
  static constexpr std::size_t kTotal = kMargin + kMost + kMargin;

  static char* map() {
    return static_cast<char*>(mmap(nullptr, kTotal, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }

  std::size_t bytes_;
  char* begin_;
};

// Checks on, faults recorded.
class LibcTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(reserve_test_map().ok());
    init(Options{}, Hooks{});
    ASSERT_TRUE(is_checking());
    set_fault_hook(&FaultRecord::hook);
    FaultRecord::clear();
  }

  void TearDown() override {
    EXPECT_EQ(FaultRecord::count(), 0u) << "a fault that no expectation took: "
                                        << (FaultRecord::count() > 0 ? FaultRecord::at(0).function : "");
    set_fault_hook(nullptr);
  }

  // Exactly one fault was raised since the last call, of this kind; takes it.
  static void expect_bad_access(const char* function, bool is_write, const void* bad, const std::string& when) {
    ASSERT_GE(FaultRecord::count(), 1u) << function << " raised nothing, " << when;
    EXPECT_EQ(FaultRecord::count(), 1u) << function << ", " << when;
    const Fault fault = FaultRecord::at(0);
    FaultRecord::clear();
    EXPECT_STREQ(fault.function, function) << when;
    EXPECT_EQ(fault.kind, FaultKind::kBadAccess) << function << ", " << when;
    EXPECT_EQ(fault.is_write, is_write) << function << ", " << when;
    EXPECT_EQ(fault.bad.value, reinterpret_cast<std::uintptr_t>(bad)) << function << ", " << when;
    EXPECT_LE(fault.addr, fault.bad) << function << ", " << when;
    EXPECT_GT(fault.addr + fault.size, fault.bad) << function << ", " << when;
  }

  static void expect_no_fault(const char* function, const std::string& when) {
    ASSERT_EQ(FaultRecord::count(), 0u) << function << " raised a false report, " << when;
  }
};

}  // namespace penumbra::libc::testing
