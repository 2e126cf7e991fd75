#include "allocator/purge/gather.h"

#include <sys/mman.h>

#include "allocator/purge/guards.h"
#include "runtime/base/check.h"
#include "runtime/base/os_linux.h"

namespace penumbra::region {
namespace {

AppAddr begin_of(const iovec& r) {
  return AppAddr(r.iov_base);
}

AppAddr end_of(const iovec& r) {
  return AppAddr(r.iov_base) + r.iov_len;
}

bool advise_one(const iovec& range, int advice) {
  if (advice == MADV_DONTNEED) return Guards::drop(begin_of(range), range.iov_len);
  return os::advise(begin_of(range), range.iov_len, advice).ok();
}

// All ranges, in as few calls as the kernel takes; a range that a batch refuses is tried alone.
bool advise(const iovec* ranges, std::size_t count, int advice, bool batches) {
  bool all = true;
  std::size_t done = 0;
  while (done < count) {
    if (batches && count - done > 1) {
      const os::Result advised = os::process_advise(os::kPidfdSelf, ranges + done, count - done, advice);
      // A short count ends at a range boundary or inside one; ranges are advised again whole from there.
      std::size_t bytes = advised.ok() ? static_cast<std::size_t>(advised.value()) : 0;
      while (done < count && bytes >= ranges[done].iov_len) bytes -= ranges[done++].iov_len;
      if (done == count) break;
    }
    if (!advise_one(ranges[done], advice)) all = false;
    ++done;
  }
  return all;
}

}  // namespace

void Gather::Ranges::add(AppAddr begin, std::size_t bytes) {
  if (count > 0) {
    iovec& last = at[count - 1];
    PENUMBRA_DCHECK(end_of(last) <= begin);
    if (begin - end_of(last) <= kPageSize) {
      last.iov_len = begin + bytes - begin_of(last);
      return;
    }
  }
  PENUMBRA_CHECK(count < kMaxRanges);
  at[count++] = {begin.ptr<void>(), bytes};
}

std::size_t Gather::Ranges::pages() const {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < count; ++i) bytes += at[i].iov_len;
  return bytes / kPageSize;
}

Gather::Outcome Gather::submit(bool batches) {
  Outcome outcome{true, true};
  outcome.dropped = advise(drop_.at, drop_.count, MADV_DONTNEED, batches);
  // Only a hint: memory that is not given up this way stays within the budget anyway.
  advise(lazy_.at, lazy_.count, MADV_FREE, batches);
  outcome.guarded = advise(guard_.at, guard_.count, os::kMadvGuardInstall, batches);
  return outcome;
}

bool Gather::drop_shadow(const iovec* ranges, std::size_t count, bool batches) {
  return advise(ranges, count, MADV_DONTNEED, batches);
}

}  // namespace penumbra::region
