// The C API's reference counts (include/penumbra/refcount.h): runtime/base/refcount.h, with a report of what is wrong.
//
// zone: signal-safe
#include "penumbra/refcount.h"

#include "runtime/base/export.h"
#include "runtime/base/fault.h"
#include "runtime/base/refcount.h"

namespace penumbra::runtime {
namespace {

// The kernel's words, by which people know these reports.
const char* words_of(RefVerdict verdict) {
  switch (verdict) {
    case RefVerdict::kAdditionOnZero: return "refcount_t: addition on 0; use-after-free.";
    case RefVerdict::kUnderflow: return "refcount_t: underflow; use-after-free.";
    case RefVerdict::kSaturated: return "refcount_t: saturated; leaking memory.";
    case RefVerdict::kDecrementToZero: return "refcount_t: decrement hit 0; leaking memory.";
    case RefVerdict::kFine: break;
  }
  return nullptr;
}

[[gnu::noinline, gnu::cold]] void report(RefVerdict verdict, penumbra_refcount_t* count, const CodeContext& caller) {
  Fault fault;
  fault.kind = FaultKind::kRefcount;
  fault.is_write = true;
  fault.addr = AppAddr(count);
  fault.size = sizeof count->refs;
  fault.context = caller;
  fault.words = words_of(verdict);
  raise_fault(fault);
}

}  // namespace
}  // namespace penumbra::runtime

using penumbra::Refcount;
using penumbra::RefResult;
using penumbra::RefVerdict;
using penumbra::runtime::report;

PENUMBRA_EXPORT void penumbra_refcount_set(penumbra_refcount_t* count, int n) {
  Refcount::set(count->refs, n);
}

PENUMBRA_EXPORT int penumbra_refcount_read(const penumbra_refcount_t* count) {
  return __atomic_load_n(&count->refs, __ATOMIC_RELAXED);
}

PENUMBRA_EXPORT void penumbra_refcount_add(int n, penumbra_refcount_t* count) {
  const RefVerdict verdict = Refcount::add(count->refs, n);
  if (verdict != RefVerdict::kFine) report(verdict, count, PENUMBRA_CALLER());
}

PENUMBRA_EXPORT void penumbra_refcount_inc(penumbra_refcount_t* count) {
  const RefVerdict verdict = Refcount::add(count->refs, 1);
  if (verdict != RefVerdict::kFine) report(verdict, count, PENUMBRA_CALLER());
}

PENUMBRA_EXPORT int penumbra_refcount_add_not_zero(int n, penumbra_refcount_t* count) {
  const RefResult result = Refcount::add_not_zero(count->refs, n);
  if (result.verdict != RefVerdict::kFine) report(result.verdict, count, PENUMBRA_CALLER());
  return result.done;
}

PENUMBRA_EXPORT int penumbra_refcount_inc_not_zero(penumbra_refcount_t* count) {
  const RefResult result = Refcount::add_not_zero(count->refs, 1);
  if (result.verdict != RefVerdict::kFine) report(result.verdict, count, PENUMBRA_CALLER());
  return result.done;
}

PENUMBRA_EXPORT int penumbra_refcount_sub_and_test(int n, penumbra_refcount_t* count) {
  const RefResult result = Refcount::sub_and_test(count->refs, n);
  if (result.verdict != RefVerdict::kFine) report(result.verdict, count, PENUMBRA_CALLER());
  return result.done;
}

PENUMBRA_EXPORT int penumbra_refcount_dec_and_test(penumbra_refcount_t* count) {
  const RefResult result = Refcount::sub_and_test(count->refs, 1);
  if (result.verdict != RefVerdict::kFine) report(result.verdict, count, PENUMBRA_CALLER());
  return result.done;
}

PENUMBRA_EXPORT void penumbra_refcount_dec(penumbra_refcount_t* count) {
  const RefVerdict verdict = Refcount::dec(count->refs);
  if (verdict != RefVerdict::kFine) report(verdict, count, PENUMBRA_CALLER());
}
