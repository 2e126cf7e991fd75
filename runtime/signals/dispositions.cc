#include "runtime/signals/dispositions.h"

#include <array>
#include <atomic>
#include <utility>

#include "runtime/base/config.h"
#include "runtime/signals/fault_handler.h"
#include "runtime/signals/more_thunks.h"

namespace penumbra::signals {
namespace {

// Changed by us on the way to the kernel; a slot remembers what the program said.
constexpr int kKeptFlags = SA_SIGINFO | SA_ONSTACK | SA_RESETHAND;

// Two words would tear; flags of one slot fit beside the 47 bits of a handler's address.
constexpr unsigned kFlagsShift = 48;
constexpr std::uint64_t kUsed = std::uint64_t{1} << 63;

constinit std::array<std::atomic<std::uint64_t>, kSlots> g_slots{};
constinit std::atomic<bool> g_covers_all{false};

using more_thunks::kNone;
using more_thunks::Thunk;

template <std::size_t Slot>
void thunk(int signal, siginfo_t* info, void* context) {
  handle_signal(Slot, signal, info, context);
}

template <std::size_t... Slot>
constexpr std::array<Thunk, sizeof...(Slot)> make_thunks(std::index_sequence<Slot...>) {
  return {thunk<Slot>...};
}

constinit const std::array<Thunk, kSlots> kThunks = make_thunks(std::make_index_sequence<kSlots>());

Thunk thunk_of(std::size_t slot) {
  return slot < kSlots ? kThunks[slot] : more_thunks::thunk_of(slot);
}

// kNone for what is no thunk.
std::size_t slot_of(const struct sigaction& held) {
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    if (held.sa_sigaction == kThunks[slot]) return slot;
  }
  return more_thunks::slot_of(held.sa_sigaction);
}

constexpr std::uint64_t kUntouchedBit = 8;

std::uint64_t pack(const struct sigaction& wanted) {
  std::uint64_t bits = 0;
  if ((wanted.sa_flags & SA_SIGINFO) != 0) bits |= 1;
  if ((wanted.sa_flags & SA_ONSTACK) != 0) bits |= 2;
  if ((wanted.sa_flags & SA_RESETHAND) != 0) bits |= 4;
  return kUsed | bits << kFlagsShift | reinterpret_cast<std::uintptr_t>(wanted.sa_handler);
}

Disposition unpack(std::uint64_t slot) {
  const std::uint64_t bits = slot >> kFlagsShift;
  Disposition disposition;
  disposition.is_untouched = (bits & kUntouchedBit) != 0;
  disposition.handler = slot & ((std::uint64_t{1} << kFlagsShift) - 1);
  if ((bits & 1) != 0) disposition.flags |= SA_SIGINFO;
  if ((bits & 2) != 0) disposition.flags |= SA_ONSTACK;
  if ((bits & 4) != 0) disposition.flags |= static_cast<int>(SA_RESETHAND);
  return disposition;
}

// kNone when no more can be had.
std::size_t slot_for(std::uint64_t value) {
  for (std::size_t i = 0; i < kSlots; ++i) {
    std::uint64_t seen = g_slots[i].load(std::memory_order_acquire);
    if (seen == 0 && g_slots[i].compare_exchange_strong(seen, value, std::memory_order_acq_rel)) return i;
    if (seen == value) return i;
  }
  return more_thunks::slot_for(value);
}

}  // namespace

bool is_watched(int signal) {
  return signal == SIGSEGV || signal == SIGBUS;
}

void cover_all_signals() {
  g_covers_all.store(true, std::memory_order_release);
}

bool is_covered(int signal) {
  return is_watched(signal) || g_covers_all.load(std::memory_order_acquire);
}

struct sigaction to_kernel(int signal, const struct sigaction& wanted) {
  const bool has_default = wanted.sa_handler == SIG_DFL && !is_watched(signal);
  if (wanted.sa_handler == SIG_IGN || has_default ||
      reinterpret_cast<std::uintptr_t>(wanted.sa_handler) >= kUserAddressEnd || slot_of(wanted) != kNone) {
    return wanted;
  }
  const std::size_t slot = slot_for(pack(wanted));
  if (slot == kNone) return wanted;
  struct sigaction held = wanted;
  held.sa_sigaction = thunk_of(slot);
  if (!is_watched(signal)) return held;
  held.sa_flags |= SA_SIGINFO;
  // A one-shot handler is used up by a fault that reaches it, not by one of ours that goes before.
  held.sa_flags &= ~static_cast<int>(SA_RESETHAND);
  // Without a handler of the program's there is nobody whom an alternate stack could disturb, and a stack that has
  // overflowed can only be reported from another one.
  if (wanted.sa_handler == SIG_DFL) held.sa_flags |= SA_ONSTACK;
  return held;
}

struct sigaction untouched_default() {
  struct sigaction held {};
  held.sa_sigaction = thunk_of(slot_for(pack(held) | kUntouchedBit << kFlagsShift));
  held.sa_flags = SA_SIGINFO | SA_ONSTACK;
  return held;
}

struct sigaction to_program(int signal, const struct sigaction& held) {
  const std::size_t slot = slot_of(held);
  if (slot == kNone) return held;
  const Disposition disposition = disposition_of(slot);
  if (disposition.is_untouched) return {};
  struct sigaction shown = held;
  shown.sa_handler = reinterpret_cast<sighandler_t>(disposition.handler);
  if (is_watched(signal)) shown.sa_flags = (held.sa_flags & ~kKeptFlags) | disposition.flags;
  return shown;
}

Disposition disposition_of(std::size_t slot) {
  return unpack(slot < kSlots ? g_slots[slot].load(std::memory_order_acquire) : more_thunks::value_of(slot));
}

}  // namespace penumbra::signals
