#include "allocator/region/record.h"

#include <algorithm>

#include "runtime/base/config.h"

namespace penumbra::region {

os::Result RecordTable::init(std::size_t capacity) {
  capacity_ = static_cast<std::uint32_t>(std::min<std::size_t>(capacity, std::size_t{1} << 30));
  bytes_ = round_up(capacity_ * sizeof(Record), kPageSize);
  const os::Result table = os::map_noreserve(bytes_);
  if (table.ok()) records_ = table.address().ptr<Record>();
  return table;
}

void RecordTable::destroy() {
  if (records_ == nullptr) return;
  os::unmap(AppAddr(records_), bytes_).ignore();
  records_ = nullptr;
}

Handle RecordTable::grow(std::uint32_t count) {
  std::uint32_t used = used_.load(std::memory_order_relaxed);
  do {
    if (count > capacity_ - used) return kNoHandle;
  } while (!used_.compare_exchange_weak(used, used + count, std::memory_order_relaxed));
  return used;
}

}  // namespace penumbra::region
