#include "runtime/base/scratch_pool.h"

#include "runtime/base/check.h"

namespace penumbra {

bool ScratchPool::reserve() {
  if (reservations_.inc_not_zero().done) return true;  // and with it the set that the count stands for
  const LockGuard guard(changing_);
  // Somebody may have been first; nobody unmaps while we hold the lock, and what is 0 under it stays 0.
  if (reservations_.inc_not_zero().done) return true;
  count_ = wanted_ != 0 ? wanted_ : os::possible_cpus() + 1;
  const std::size_t flags = round_up(std::size_t{count_} * 64, kPageSize);
  mapped_bytes_ = flags + count_ * bytes_;
  const os::Result mapped = os::map_anonymous(mapped_bytes_);
  if (!mapped.ok()) return false;
  flags_ = mapped.address().ptr<std::uint8_t>();
  buffers_ = flags_ + flags;
  reservations_.set(1);  // behind the set, which it lets others into
  return true;
}

void ScratchPool::unreserve() {
  const LockGuard guard(changing_);
  const RefResult last = reservations_.dec_and_test();
  PENUMBRA_CHECK(last.verdict == RefVerdict::kFine);
  if (!last.done) return;
  os::unmap(AppAddr(flags_), mapped_bytes_).ignore();
  flags_ = buffers_ = nullptr;
}

}  // namespace penumbra
