#include "instrument/libc/touch.h"

#include "instrument/libc/state.h"

namespace penumbra::libc {

void Touch::check_range(AppAddr a, std::size_t bytes, bool is_write) const {
  const AppAddr bad = shadow::first_bad(a, bytes);
  if (bad == shadow::kNoBadByte) [[likely]]
    return;
  Fault fault;
  fault.kind = a.value + bytes < a.value ? FaultKind::kWrappedAccess : FaultKind::kBadAccess;
  fault.is_write = is_write;
  fault.addr = a;
  fault.size = bytes;
  fault.bad = bad;
  report(fault);
}

void Touch::report_scan(AppAddr begin, std::size_t good_bytes, std::size_t char_bytes) const {
  Fault fault;
  fault.addr = begin;
  fault.size = good_bytes + char_bytes;
  fault.bad = shadow::first_bad(begin + good_bytes, char_bytes);
  // Another thread may have made the byte accessible since.
  if (fault.bad == shadow::kNoBadByte) fault.bad = begin + good_bytes;
  report(fault);
}

void Touch::report_overlap(AppAddr to, AppAddr from, std::size_t bytes) const {
  // A range that cannot be touched anyway has its report.
  if (!state.overlap || !shadow::is_accessible(to, bytes) || !shadow::is_accessible(from, bytes)) return;
  Fault fault;
  fault.kind = FaultKind::kOverlap;
  fault.is_write = true;
  fault.addr = to;
  fault.size = bytes;
  fault.bad = to;
  fault.other_addr = from;
  report(fault);
}

void Touch::report(Fault& fault) const {
  // Here and not before the look, which is what nearly every call costs.
  const bool is_wanted = fault.kind == FaultKind::kOverlap || (fault.is_write ? state.writes : state.reads);
  if (!is_wanted) return;
  const auto* const frame = static_cast<const std::uintptr_t*>(frame_);
  fault.context = {frame[1], reinterpret_cast<std::uintptr_t>(frame) + 16, frame[0]};
  fault.function = function_;
  raise_fault(fault);
}

}  // namespace penumbra::libc
