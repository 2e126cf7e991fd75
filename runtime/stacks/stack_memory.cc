#include "runtime/stacks/stack_memory.h"

#include <atomic>

#include "runtime/base/config.h"
#include "runtime/base/os_linux.h"
#include "runtime/base/raw_memory.h"

// Where the stack pointer was when the first thread started; ld.so sets it.
extern "C" __attribute__((weak)) void* __libc_stack_end;

namespace penumbra::stacks {
namespace {

// The kernel keeps at least this much between the first thread's stack and the nearest mapping of its own choice
// (MIN_GAP in arch/x86/mm/mmap.c is 128 MiB plus the stack's random shift). A deeper stack is walked by probing.
constexpr std::size_t kFirstStackReach = std::size_t{64} << 20;

// A thread's own stack is looked up in /proc/self/maps once it was walked this often: the look-up costs as much as
// probing in some hundred walks, and threads that live shorter never pay it.
constexpr std::uint32_t kWalksBeforeLookup = 256;

struct OwnStack {
  std::uintptr_t low = 0;
  std::uintptr_t high = 0;
  std::uint32_t walks = 0;  // without knowing the range; stops counting once the look-up was made
};

constinit thread_local OwnStack t_own;

__attribute__((always_inline)) inline std::uintptr_t stack_pointer() {
  std::uintptr_t value;
  asm("mov %%rsp, %0" : "=r"(value));
  return value;
}

// Upper end of the first thread's stack, as far as frames can lie: the page that holds the argument count.
std::uintptr_t first_stack_end() {
  if (&__libc_stack_end == nullptr) return 0;
  const auto end = reinterpret_cast<std::uintptr_t>(__libc_stack_end);
  return end == 0 ? 0 : round_down(end, kPageSize) + kPageSize;
}

// Parses "low-high perms ..." lines of /proc/self/maps piece by piece, for the mapping that holds `address`.
class MapsReader {
 public:
  explicit MapsReader(std::uintptr_t address) : address_(address) {}

  bool find(std::uintptr_t& low, std::uintptr_t& high) {
    const os::Result fd = os::open_read("/proc/self/maps");
    if (!fd.ok()) return false;
    bool found = false;
    char text[1024];
    while (!found) {
      const os::Result got = os::read(static_cast<int>(fd.value()), text, sizeof text);
      if (!got.ok() || got.value() <= 0) break;
      for (long i = 0; i < got.value() && !found; ++i) found = consume(text[i]);
    }
    os::close(static_cast<int>(fd.value())).ignore();
    low = low_;
    high = high_;
    return found;
  }

 private:
  // True once a whole range that holds the address was read.
  bool consume(char c) {
    if (c == '\n') {
      low_ = high_ = 0;
      field_ = Field::kLow;
    } else if (field_ == Field::kLow) {
      if (c == '-')
        field_ = Field::kHigh;
      else
        low_ = low_ << 4 | digit(c);
    } else if (field_ == Field::kHigh) {
      if (c != ' ') {
        high_ = high_ << 4 | digit(c);
      } else {
        field_ = Field::kRest;
        return low_ <= address_ && address_ < high_;
      }
    }
    return false;
  }

  static std::uintptr_t digit(char c) { return static_cast<std::uintptr_t>(c <= '9' ? c - '0' : c - 'a' + 10); }

  enum class Field : std::uint8_t { kLow, kHigh, kRest };

  std::uintptr_t address_;
  std::uintptr_t low_ = 0;
  std::uintptr_t high_ = 0;
  Field field_ = Field::kLow;
};

// The mapping that ends in, or goes on behind, the thread control block. Not for the first thread, whose block is
// in memory of the loader's.
void look_up_own_stack() {
  const std::uintptr_t block = os::thread_pointer().value;
  if (os::gettid() == os::getpid()) return;
  std::uintptr_t low;
  std::uintptr_t high;
  if (!MapsReader(block - 1).find(low, high)) return;
  set_own_stack(low, block);
}

}  // namespace

void set_own_stack(std::uintptr_t low, std::uintptr_t high) {
  t_own.low = low;
  std::atomic_signal_fence(std::memory_order_seq_cst);  // a handler in between sees an empty range
  t_own.high = high;
}

bool StackMemory::is_page_readable(std::uintptr_t address) {
  const std::uintptr_t page = round_down(address, kPageSize);
  if (page == probed_page_) return true;
  if (address >= kUserAddressEnd || !os::is_readable(AppAddr(page))) return false;
  probed_page_ = page;
  return true;
}

bool StackMemory::move_to(std::uintptr_t sp) {
  if (sp >= kUserAddressEnd - kPageSize || sp % 8 != 0) return false;
  begin_ = sp;
  OwnStack& own = t_own;
  if (sp >= own.low && sp < own.high) {
    limit_ = own.high;
    return true;
  }
  const std::uintptr_t first_end = first_stack_end();
  if (sp < first_end && first_end - sp <= kFirstStackReach) {
    // Above the stack pointer we run on everything is mapped. A stack pointer from elsewhere (a context, another
    // thread) may lie below the part that exists.
    const std::uintptr_t here = stack_pointer();
    if ((here <= sp && here < first_end && first_end - here <= kFirstStackReach) || is_page_readable(sp)) {
      limit_ = first_end;
      return true;
    }
  }
  if (own.walks < kWalksBeforeLookup && ++own.walks == kWalksBeforeLookup) {
    look_up_own_stack();
    if (sp >= own.low && sp < own.high) {
      limit_ = own.high;
      return true;
    }
  }
  if (!is_page_readable(sp)) {
    limit_ = sp;
    return false;
  }
  limit_ = round_down(sp, kPageSize) + kPageSize;
  return true;
}

bool StackMemory::read(std::uintptr_t address, std::uint64_t& value) {
  return read_bytes(address, &value, sizeof value);
}

bool StackMemory::read_bytes(std::uintptr_t address, void* into, std::size_t bytes) {
  const std::uintptr_t end = address + bytes;
  if (end < address) return false;
  if (address < begin_ || end > limit_) {
    for (std::uintptr_t page = round_down(address, kPageSize); page < end; page += kPageSize) {
      if (!is_page_readable(page)) return false;
    }
  }
  raw_copy(into, reinterpret_cast<const void*>(address), bytes);
  return true;
}

}  // namespace penumbra::stacks
