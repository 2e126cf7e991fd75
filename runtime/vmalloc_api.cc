// The C API's areas (include/penumbra/penumbra.h) on the process's region allocator.
//
// zone: nomalloc
#include "runtime/vmalloc_api.h"

#include <errno.h>

#include <algorithm>

#include "penumbra/penumbra.h"
#include "runtime/api_regions.h"
#include "runtime/base/export.h"
#include "runtime/base/fault.h"
#include "runtime/base/raw_memory.h"
#include "runtime/base/text_buffer.h"
#include "runtime/family_api.h"

namespace penumbra::runtime {
namespace {

using region::AreaKind;
using region::FreeVerdict;

void raise_late(const region::LateFault& late) {
  raise_bad_free(late.verdict, late.address, late.context, "penumbra_vfree_atomic");
}

void* allocate(region::Request request, const CodeContext& caller) {
  return with_regions(
      [&](auto& regions) {
        request.kind = AreaKind::kVmalloc;
        request.stack = record_stack(caller);
        return regions.allocate(request).template ptr<void>();
      },
      static_cast<void*>(nullptr));
}

void free_area(const void* area, const CodeContext& caller, const char* function) {
  if (area == nullptr) return;
  const FreeVerdict verdict = with_regions(
      [&](auto& regions) { return regions.free(AppAddr(area), record_stack(caller), AreaKind::kVmalloc); },
      FreeVerdict::kForeign);
  if (verdict != FreeVerdict::kFreed) raise_bad_free(verdict, AppAddr(area), caller, function);
}

template <class Regions>
void free_late(Regions& regions, AppAddr area, const CodeContext& caller) {
  regions.set_late_fault_hook(raise_late);
  regions.free_from_signal(area, record_stack(caller), caller, AreaKind::kVmalloc);
}

void* reallocate(const void* area, std::size_t size, const CodeContext& caller) {
  const AppAddr old(area);
  std::size_t kept = 0;
  const region::ResizeVerdict verdict = with_regions(
      [&](auto& regions) { return regions.resize(old, size, record_stack(caller), AreaKind::kVmalloc, kept); },
      region::ResizeVerdict::kForeign);
  switch (verdict) {
    case region::ResizeVerdict::kResized: return const_cast<void*>(area);
    case region::ResizeVerdict::kMustMove: break;
    default:
      raise_bad_free(verdict == region::ResizeVerdict::kDoubleFree ? FreeVerdict::kDoubleFree : FreeVerdict::kForeign,
                     old, caller, "penumbra_vrealloc");
      errno = EINVAL;
      return nullptr;
  }
  region::Request request;
  request.bytes = size;
  void* const moved = allocate(request, caller);
  if (moved == nullptr) return nullptr;
  raw_copy(moved, area, std::min(kept, size));
  free_area(area, caller, "penumbra_vrealloc");
  return moved;
}

struct Line {
  const char* name;
  std::uint64_t penumbra_stats::*value;
};

constexpr Line kLines[] = {
    {"live areas", &penumbra_stats::live_areas},
    {"live bytes", &penumbra_stats::live_bytes},
    {"lazy areas", &penumbra_stats::lazy_areas},
    {"lazy bytes", &penumbra_stats::lazy_bytes},
    {"retained areas", &penumbra_stats::retained_areas},
    {"retained bytes", &penumbra_stats::retained_bytes},
    {"shadow pages", &penumbra_stats::shadow_pages},
    {"shadow pages dying", &penumbra_stats::shadow_pages_dying},
    {"shadow pages pinned", &penumbra_stats::shadow_pinned},
    {"flushes", &penumbra_stats::flushes},
    {"pages flushed", &penumbra_stats::flushed_pages},
    {"purge passes", &penumbra_stats::purge_passes},
    {"purge chunks", &penumbra_stats::purge_chunks},
    {"longest chunk, ns", &penumbra_stats::longest_chunk_ns},
    {"late faults lost", &penumbra_stats::late_faults_lost},
};

penumbra_stats collect() {
  penumbra_stats all{};
  with_regions(
      [&](auto& regions) {
        const region::Stats s = regions.stats();
        all = {
            s.live_areas,     s.live_bytes,   s.lazy_areas,         s.lazy_bytes,       s.retained_areas,
            s.retained_bytes, s.shadow_pages, s.shadow_pages_dying, s.shadow_pinned,    s.flushes,
            s.flushed_pages,  s.purge_passes, s.purge_chunks,       s.longest_chunk_ns, regions.lost_late_faults()};
        return true;
      },
      false);
  return all;
}

}  // namespace

void append_vmalloc_stats(TextBuffer& out) {
  const penumbra_stats all = collect();
  for (const Line& line : kLines) {
    out.append(line.name);
    out.append(":").pad_to(22);
    out.dec(all.*line.value).append("\n");
  }
}

}  // namespace penumbra::runtime

using penumbra::AppAddr;
using penumbra::region::Request;

PENUMBRA_EXPORT void* penumbra_vmalloc(size_t size) {
  Request request;
  request.bytes = size;
  return penumbra::runtime::allocate(request, PENUMBRA_CALLER());
}

PENUMBRA_EXPORT void* penumbra_vzalloc(size_t size) {
  Request request;
  request.bytes = size;
  request.zero = true;
  return penumbra::runtime::allocate(request, PENUMBRA_CALLER());
}

PENUMBRA_EXPORT void* penumbra_vmalloc_aligned(size_t size, size_t alignment) {
  Request request;
  request.bytes = size;
  request.alignment = alignment;
  return penumbra::runtime::allocate(request, PENUMBRA_CALLER());
}

PENUMBRA_EXPORT void* penumbra_vmalloc_huge(size_t size) {
  Request request;
  request.bytes = size;
  request.huge = true;
  return penumbra::runtime::allocate(request, PENUMBRA_CALLER());
}

PENUMBRA_EXPORT void* penumbra_vrealloc(const void* area, size_t size) {
  const penumbra::CodeContext caller = PENUMBRA_CALLER();
  if (area == nullptr) {
    Request request;
    request.bytes = size;
    return penumbra::runtime::allocate(request, caller);
  }
  if (size == 0) {
    penumbra::runtime::free_area(area, caller, "penumbra_vrealloc");
    return nullptr;
  }
  return penumbra::runtime::reallocate(area, size, caller);
}

PENUMBRA_EXPORT void penumbra_vfree(const void* area) {
  penumbra::runtime::free_area(area, PENUMBRA_CALLER(), "penumbra_vfree");
}

// No initialisation from a handler: an address that nobody allocated is no area.
PENUMBRA_EXPORT void penumbra_vfree_atomic(const void* area) {
  if (area == nullptr) return;
  const penumbra::CodeContext caller = PENUMBRA_CALLER();
  if (penumbra::region::is_initialized()) {
    penumbra::runtime::free_late(penumbra::region::process_regions(), AppAddr(area), caller);
  } else if (penumbra::runtime::g_plain_regions.is_initialized()) {
    penumbra::runtime::free_late(penumbra::runtime::g_plain_regions, AppAddr(area), caller);
  }
}

PENUMBRA_EXPORT void penumbra_get_stats(penumbra_stats* stats, size_t size) {
  const penumbra_stats all = penumbra::runtime::collect();
  penumbra::raw_set(stats, 0, size);
  penumbra::raw_copy(stats, &all, std::min(size, sizeof all));
}

PENUMBRA_EXPORT size_t penumbra_stats_text(char* buffer, size_t size) {
  penumbra::FixedTextBuffer<1024> text;
  penumbra::runtime::append_vmalloc_stats(text);
  if (size != 0) {
    const std::size_t kept = std::min(size - 1, text.size());
    penumbra::raw_copy(buffer, text.data(), kept);
    buffer[kept] = '\0';
  }
  return text.size();
}

PENUMBRA_EXPORT void penumbra_purge(void) {
  penumbra::runtime::trim_family();
  penumbra::runtime::with_regions(
      [](auto& regions) {
        regions.purge_all();
        return true;
      },
      false);
}
