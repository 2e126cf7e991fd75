// Nothing that lies in memory makes the unwinder crash, hang or read where it may not: random contexts, random stacks,
// random unwind tables and expressions.
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <vector>

#include "elf_image.h"
#include "runtime/base/config.h"
#include "runtime/stacks/cfi.h"
#include "runtime/stacks/frame_step.h"
#include "runtime/stacks/stacks.h"

#include <gtest/gtest.h>

namespace {

using penumbra::CodeContext;
using penumbra::kMaxStackFrames;
using penumbra::testing::ElfImage;
using namespace penumbra::stacks;

// Memory with nothing before and nothing behind it.
class Island {
 public:
  explicit Island(std::size_t bytes) : bytes_(bytes) {
    memory_ = static_cast<std::uint8_t*>(
        mmap(nullptr, bytes + 2 * penumbra::kPageSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(begin(), bytes, PROT_READ | PROT_WRITE);
  }
  ~Island() { munmap(memory_, bytes_ + 2 * penumbra::kPageSize); }

  std::uint8_t* begin() const { return memory_ + penumbra::kPageSize; }
  std::uint8_t* end() const { return begin() + bytes_; }
  std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(begin()); }

 private:
  std::size_t bytes_;
  std::uint8_t* memory_;
};

// Addresses of code with many shapes of frame: anywhere in libc.
std::uintptr_t random_code(std::mt19937_64& random) {
  const auto somewhere = reinterpret_cast<std::uintptr_t>(&qsort);
  return somewhere - 0x10000 + random() % 0x100000;
}

// What a stack word may be: an address in the stack, code, a small number, anything.
std::uintptr_t random_word(std::mt19937_64& random, const Island& stack, std::size_t bytes) {
  switch (random() % 5) {
    case 0: return stack.address() + random() % bytes;
    case 1: return (stack.address() + random() % bytes) & ~std::uintptr_t{7};
    case 2: return random_code(random);
    case 3: return random() % 4096;
    default: return random();
  }
}

void expect_sane(const std::uintptr_t* frames, std::size_t count, std::size_t max) {
  ASSERT_LE(count, max);
  for (std::size_t i = 1; i < count; ++i) {
    ASSERT_LT(frames[i], penumbra::kUserAddressEnd);
    ASSERT_TRUE(frames[i] != kBrokenStack || i == count - 1);
  }
}

TEST(Garbage, RandomStacksEndWithinBounds) {
  constexpr std::size_t kBytes = 3 * penumbra::kPageSize;
  std::mt19937_64 random(11);
  const Island stack(kBytes);
  for (int round = 0; round < 20000; ++round) {
    if (round % 50 == 0) {
      for (std::size_t i = 0; i < kBytes; i += 8) {
        const std::uintptr_t word = random_word(random, stack, kBytes);
        std::memcpy(stack.begin() + i, &word, sizeof word);
      }
    }
    std::uintptr_t frames[kMaxStackFrames];
    const CodeContext from{random_code(random), random_word(random, stack, kBytes),
                           random_word(random, stack, kBytes)};
    const std::size_t max = random() % (kMaxStackFrames + 1);
    expect_sane(frames, unwind(from, frames, max), max);
    record(from, max);
  }
}

TEST(Garbage, RandomRegistersInASignalContextEndWithinBounds) {
  constexpr std::size_t kBytes = 3 * penumbra::kPageSize;
  std::mt19937_64 random(12);
  const Island stack(kBytes);
  for (int round = 0; round < 20000; ++round) {
    if (round % 50 == 0) {
      for (std::size_t i = 0; i < kBytes; i += 8) {
        const std::uintptr_t word = random_word(random, stack, kBytes);
        std::memcpy(stack.begin() + i, &word, sizeof word);
      }
    }
    ucontext_t context = {};
    for (greg_t& value : context.uc_mcontext.gregs) value = static_cast<greg_t>(random_word(random, stack, kBytes));
    context.uc_mcontext.gregs[REG_RIP] = static_cast<greg_t>(random_code(random));
    std::uintptr_t frames[kMaxStackFrames];
    expect_sane(frames, unwind_ucontext(&context, frames, kMaxStackFrames), kMaxStackFrames);
  }
}

// The restorer's frame takes every register from the stack, so a forged one can send the walk anywhere, also back.
TEST(Garbage, ForgedSignalFramesDoNotLoop) {
  constexpr std::size_t kBytes = 4 * penumbra::kPageSize;
  const Island stack(kBytes);
  struct sigaction action;
  // The kernel's view of an installed handler tells where libc's restorer is.
  struct KernelAction {
    void* handler;
    unsigned long flags;
    void* restorer;
    unsigned long mask;
  } kernel = {};
  action = {};
  action.sa_handler = [](int) {};
  sigaction(SIGUSR2, &action, nullptr);
  ASSERT_EQ(syscall(13 /* rt_sigaction */, SIGUSR2, nullptr, &kernel, 8), 0);
  const auto restorer = reinterpret_cast<std::uintptr_t>(kernel.restorer);
  auto* context = reinterpret_cast<ucontext_t*>(stack.begin());
  std::memset(static_cast<void*>(context), 0, sizeof *context);
  context->uc_mcontext.gregs[REG_RIP] = static_cast<greg_t>(restorer);
  context->uc_mcontext.gregs[REG_RSP] = static_cast<greg_t>(stack.address());
  std::uintptr_t frames[kMaxStackFrames];
  const CodeContext from{restorer, stack.address(), 0};
  const std::size_t count = unwind(from, frames, kMaxStackFrames);
  expect_sane(frames, count, kMaxStackFrames);
  EXPECT_LT(count, 20u);
  EXPECT_GT(count, 2u);
}

// A real section with bytes changed at random: parsing and executing it stays inside it.
TEST(Garbage, DamagedUnwindTablesAreSurvived) {
  const ElfImage image("/proc/self/exe");
  const std::size_t header_bytes = static_cast<std::size_t>(image.header().end - image.header().begin);
  const std::size_t distance = static_cast<std::size_t>(image.frame().end - image.header().begin);
  const std::size_t bytes = penumbra::round_up(distance, penumbra::kPageSize);
  const Island copy(bytes);
  std::uint8_t* const start = copy.end() - distance;  // so that one byte further is a fault
  std::mt19937_64 random(13);
  Registers registers;
  for (unsigned r = 0; r < kRegisters; ++r) registers.set(r, copy.address() + random() % bytes);
  for (int round = 0; round < 300; ++round) {
    std::memcpy(start, image.header().begin, distance);
    for (int damage = 0; damage < 200; ++damage)
      start[12 + random() % (distance - 12)] = static_cast<std::uint8_t>(random());
    if (round % 10 == 0) start[1 + random() % 3] = static_cast<std::uint8_t>(random());  // encodings of the header
    const ByteRange header{start, start + header_bytes};
    const ByteRange frame{start, start + distance};
    for (int look = 0; look < 50; ++look) {
      const auto& entry = image.entries()[random() % image.entries().size()];
      const std::uintptr_t shift =
          reinterpret_cast<std::uintptr_t>(start) - reinterpret_cast<std::uintptr_t>(image.header().begin);
      const std::uintptr_t pc = entry.pc_begin + shift + random() % (entry.pc_end - entry.pc_begin + 1);
      CfiEntry found;
      CfiRow row;
      if (!find_entry(header, frame, pc, found) || !row_at(found, pc, row)) continue;
      StackMemory memory;
      Registers stepped = registers;
      stepped.set(kRip, pc);
      step(found, row, stepped, memory);
    }
  }
}

TEST(Garbage, RandomExpressionsEnd) {
  const Island code(penumbra::kPageSize);
  std::mt19937_64 random(14);
  Registers registers;
  for (unsigned r = 0; r < kRegisters; ++r) registers.set(r, code.address() + random() % penumbra::kPageSize);
  unsigned good = 0;
  for (int round = 0; round < 200000; ++round) {
    const std::size_t bytes = 1 + random() % 24;
    std::uint8_t* const block = code.end() - bytes - 1;
    block[0] = static_cast<std::uint8_t>(bytes);
    for (std::size_t i = 1; i <= bytes; ++i)
      block[i] = static_cast<std::uint8_t>(random() % 3 == 0 ? random() : 0x10 + random() % 0x80);
    std::uint64_t result;
    StackMemory memory;
    const std::uint64_t cfa = code.address();
    good += evaluate({code.begin(), code.end()}, static_cast<std::int32_t>(block - code.begin()), registers, memory,
                     &cfa, result) == StepStatus::kOk;
  }
  EXPECT_GT(good, 1000u);
}

}  // namespace
