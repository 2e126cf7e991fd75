#include "runtime/signals/more_thunks.h"

#include <sys/mman.h>

#include <atomic>

#include "runtime/base/config.h"
#include "runtime/base/os_linux.h"
#include "runtime/signals/dispositions.h"
#include "runtime/signals/fault_handler.h"

namespace penumbra::signals::more_thunks {
namespace {

constexpr std::size_t kThunkBytes = 16;
constexpr std::size_t kPerBlock = kPageSize / kThunkBytes - 1;
constexpr std::size_t kEntryOffset = kPerBlock * kThunkBytes;

struct Block {
  std::uint8_t code[kEntryOffset];
  void (*entry)(int, siginfo_t*, void*, std::uint32_t slot);
  std::uint64_t unused;
  std::atomic<std::uint64_t> values[kPerBlock];
  std::atomic<Block*> next;
};
static_assert(offsetof(Block, entry) == kEntryOffset && offsetof(Block, values) == kPageSize);

constexpr std::size_t kBlockBytes = 2 * kPageSize;
static_assert(sizeof(Block) <= kBlockBytes);

constinit std::atomic<Block*> g_first{nullptr};

// Every thunk jumps here, its number behind the kernel's three arguments.
void enter(int signal, siginfo_t* info, void* context, std::uint32_t slot) {
  handle_signal(slot, signal, info, context);
}

// endbr64                  f3 0f 1e fa
// mov ecx, slot            b9 imm32
// jmp [rip + entry]        ff 25 disp32
// int3                     cc
void write_thunk(std::uint8_t* at, std::uint32_t slot, std::uint32_t distance) {
  const auto put = [&at](std::uint32_t value, unsigned bytes) {
    for (unsigned n = 0; n < bytes; ++n) *at++ = static_cast<std::uint8_t>(value >> (8 * n));
  };
  put(0xfa1e0ff3, 4);
  put(0xb9, 1);
  put(slot, 4);
  put(0x25ff, 2);
  put(distance - 15, 4);
  put(0xcc, 1);
}

Block* make_block(std::size_t index) {
  const os::Result mapped = os::map_anonymous(kBlockBytes);
  if (!mapped.ok()) return nullptr;
  auto* const block = mapped.address().ptr<Block>();
  for (std::size_t k = 0; k < kPerBlock; ++k) {
    const std::size_t offset = k * kThunkBytes;
    write_thunk(block->code + offset, static_cast<std::uint32_t>(kSlots + index * kPerBlock + k),
                static_cast<std::uint32_t>(kEntryOffset - offset));
  }
  block->entry = enter;
  if (os::protect(mapped.address(), kPageSize, PROT_READ | PROT_EXEC).ok()) return block;
  os::unmap(mapped.address(), kBlockBytes).ignore();
  return nullptr;
}

// The block behind `link`, made where there is none; null where it cannot be.
Block* block_behind(std::atomic<Block*>& link, std::size_t index) {
  Block* block = link.load(std::memory_order_acquire);
  if (block != nullptr) return block;
  Block* const made = make_block(index);
  if (made == nullptr || link.compare_exchange_strong(block, made, std::memory_order_acq_rel)) return made;
  os::unmap(AppAddr(made), kBlockBytes).ignore();
  return block;
}

const Block& block_of(std::size_t slot) {
  const Block* block = g_first.load(std::memory_order_acquire);
  for (std::size_t n = (slot - kSlots) / kPerBlock; n > 0; --n) block = block->next.load(std::memory_order_acquire);
  return *block;
}

}  // namespace

std::size_t slot_for(std::uint64_t value) {
  std::atomic<Block*>* link = &g_first;
  for (std::size_t index = 0;; ++index) {
    Block* const block = block_behind(*link, index);
    if (block == nullptr) return kNone;
    for (std::size_t k = 0; k < kPerBlock; ++k) {
      std::uint64_t seen = block->values[k].load(std::memory_order_acquire);
      const bool is_taken =
          seen == 0 && block->values[k].compare_exchange_strong(seen, value, std::memory_order_acq_rel);
      if (is_taken || seen == value) return kSlots + index * kPerBlock + k;
    }
    link = &block->next;
  }
}

Thunk thunk_of(std::size_t slot) {
  const std::uint8_t* const code = block_of(slot).code + (slot - kSlots) % kPerBlock * kThunkBytes;
  return reinterpret_cast<Thunk>(reinterpret_cast<std::uintptr_t>(code));
}

std::uint64_t value_of(std::size_t slot) {
  return block_of(slot).values[(slot - kSlots) % kPerBlock].load(std::memory_order_acquire);
}

std::size_t slot_of(Thunk thunk) {
  const auto at = reinterpret_cast<std::uintptr_t>(thunk);
  std::size_t first = kSlots;
  for (const Block* block = g_first.load(std::memory_order_acquire); block != nullptr;
       block = block->next.load(std::memory_order_acquire), first += kPerBlock) {
    const std::uintptr_t offset = at - reinterpret_cast<std::uintptr_t>(block->code);
    if (offset < kEntryOffset && offset % kThunkBytes == 0) return first + offset / kThunkBytes;
  }
  return kNone;
}

}  // namespace penumbra::signals::more_thunks
