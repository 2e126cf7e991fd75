#include "allocator/region/area_index.h"

#include "runtime/base/config.h"

namespace penumbra::region {

os::Result AreaIndex::init(std::size_t span_pages) {
  const std::size_t zones_bytes = round_up(span_pages / kZonePages * sizeof(Handle), kPageSize);
  bytes_ = zones_bytes + round_up(span_pages * sizeof(Handle), kPageSize);
  const os::Result table = os::map_noreserve(bytes_);
  if (!table.ok()) return table;
  zones_ = table.address().ptr<std::atomic<Handle>>();
  pages_ = (table.address() + zones_bytes).ptr<std::atomic<Handle>>();
  return table;
}

void AreaIndex::destroy() {
  if (zones_ == nullptr) return;
  os::unmap(AppAddr(zones_), bytes_).ignore();
  zones_ = nullptr;
}

void AreaIndex::set_large(std::uint32_t page, std::uint32_t pages, Handle h) {
  const std::uint32_t end = page + pages;
  while (page < end) {
    const std::uint32_t zone = page >> kZonePagesShift;
    if (page % kZonePages == 0 && end - page >= kZonePages) {
      zones_[zone].store(h, std::memory_order_release);
      page += kZonePages;
      continue;
    }
    const std::uint32_t stop = (zone + 1) * kZonePages;
    const std::uint32_t here = (end < stop ? end : stop) - page;
    set(page, here, h);
    set_by_page(zone);
    page += here;
  }
}

}  // namespace penumbra::region
