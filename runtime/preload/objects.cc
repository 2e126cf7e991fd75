#include "runtime/preload/objects.h"

#include "allocator/heap/heap.h"
#include "runtime/base/check.h"
#include "runtime/base/options.h"
#include "runtime/base/raw_memory.h"
#include "runtime/init.h"
#include "runtime/preload/bootstrap.h"
#include "runtime/stacks/stacks.h"
#include "runtime/threads.h"

#include <errno.h>

#include <algorithm>

namespace penumbra::preload {

constinit std::atomic<Source> g_source{Source::kBootstrap};

namespace {

StackId record_stack(const CodeContext& caller) {
  const std::int64_t depth = process_options().stack_depth;
  if (depth == 0) return kNoStack;
  return stacks::record(caller, std::min<std::size_t>(static_cast<std::size_t>(depth), kMaxStackFrames));
}

void raise(FaultKind kind, const void* object, const CodeContext& caller, const char* function,
           AllocatorName allocated_by = AllocatorName::kNone, AllocatorName freed_by = AllocatorName::kNone,
           std::size_t bytes = 0) {
  Fault fault;
  fault.kind = kind;
  fault.is_write = true;
  fault.allocated_by = allocated_by;
  fault.freed_by = freed_by;
  fault.addr = AppAddr(object);
  fault.size = bytes;
  fault.bad = fault.addr;
  fault.context = caller;
  fault.function = function;
  const runtime::NoMallocScope no_malloc;
  raise_fault(fault);
}

void raise_bad_free(heap::FreeVerdict verdict, const void* object, const CodeContext& caller, const char* function) {
  switch (verdict) {
    case heap::FreeVerdict::kDoubleFree: raise(FaultKind::kDoubleFree, object, caller, function); return;
    case heap::FreeVerdict::kCorruptHeader: raise(FaultKind::kCorruptHeader, object, caller, function); return;
    default: raise(FaultKind::kInvalidFree, object, caller, function); return;
  }
}

}  // namespace

void init(Source source) {
  g_source.store(source, std::memory_order_release);
}

bool is_ours_slowly() {
  if (g_source.load(std::memory_order_acquire) == Source::kBootstrap) runtime::init(nullptr);
  // Still bootstrap: a call from within init. The arena is ours as well.
  return g_source.load(std::memory_order_acquire) != Source::kNext;
}

namespace {

void* obtain_as(const Request& request, StackId stack) {
  PENUMBRA_DCHECK(runtime::may_allocate());
  heap::Request wanted;
  wanted.bytes = request.bytes;
  wanted.alignment = request.alignment;
  wanted.zero = request.zero;
  wanted.by = request.by;
  wanted.stack = stack;
  return heap::allocate(wanted);
}

void release_as(void* object, AllocatorName by, StackId stack, const CodeContext& caller, const char* function) {
  if (!process_options().mismatch) by = AllocatorName::kNone;
  AllocatorName allocated_by = AllocatorName::kNone;
  const heap::FreeVerdict verdict = heap::free(object, by, stack, &allocated_by);
  if (verdict == heap::FreeVerdict::kFreed) [[likely]] {
    return;
  }
  if (verdict == heap::FreeVerdict::kMismatched) {
    raise(FaultKind::kMismatchedFree, object, caller, function, allocated_by, by);
  } else {
    raise_bad_free(verdict, object, caller, function);
  }
}

}  // namespace

void* obtain(const Request& request, const CodeContext& caller) {
  if (g_source.load(std::memory_order_relaxed) != Source::kOurs) [[unlikely]] {
    void* const object = bootstrap_allocate(request.bytes, request.alignment);
    if (object == nullptr) errno = ENOMEM;
    return object;
  }
  return obtain_as(request, record_stack(caller));
}

void release(void* object, AllocatorName by, const CodeContext& caller, const char* function) {
  if (object == nullptr || bootstrap_owns(object)) return;
  release_as(object, by, record_stack(caller), caller, function);
}

void check_sized_delete(void* object, std::size_t bytes, std::size_t alignment, const CodeContext& caller,
                        const char* function) {
  if (object == nullptr || !process_options().mismatch) return;
  const heap::ObjectInfo info = heap::inspect(object);
  // Whatever else is wrong with it is the release's to tell.
  const bool is_new = info.by == AllocatorName::kNew || info.by == AllocatorName::kNewArray;
  if (info.verdict != heap::FreeVerdict::kFreed || !is_new) return;
  const bool wrong_size = bytes != ~std::size_t{0} && bytes != info.bytes;
  const bool wrong_alignment = std::max(alignment, std::size_t{16}) != info.alignment;
  if (wrong_size || wrong_alignment) {
    raise(FaultKind::kSizeMismatch, object, caller, function, info.by, info.by, wrong_size ? bytes : info.bytes);
  }
}

std::size_t usable_bytes(const void* object) {
  if (object == nullptr) return 0;
  if (bootstrap_owns(object)) return bootstrap_bytes(object);
  const std::size_t bytes = heap::requested_bytes(object);
  return bytes == ~std::size_t{0} ? 0 : bytes;
}

std::size_t usable_bytes_asked(const void* object, const CodeContext& caller, const char* function) {
  const std::size_t bytes = usable_bytes(object);
  if (bytes != 0 || object == nullptr || heap::inspect(object).verdict != heap::FreeVerdict::kDoubleFree)
    return bytes;
  Fault fault;
  fault.addr = AppAddr(object);
  fault.bad = fault.addr;
  fault.size = 1;
  fault.context = caller;
  fault.function = function;
  raise_fault(fault);
  return 0;
}

void* resize(void* object, const Request& request, OnZero on_zero, const CodeContext& caller, const char* function) {
  if (object == nullptr) return obtain(request, caller);
  if (request.bytes == 0 && on_zero == OnZero::kFree) {
    release(object, request.by, caller, function);
    return nullptr;
  }
  if (bootstrap_owns(object)) {
    void* const moved = obtain(request, caller);
    if (moved != nullptr) raw_copy(moved, object, std::min(bootstrap_bytes(object), request.bytes));
    return moved;
  }
  const heap::ObjectInfo info = heap::inspect(object);
  if (info.verdict != heap::FreeVerdict::kFreed) {
    // Reported, the program goes on with memory of the size it asked for; there is nothing to copy from.
    raise_bad_free(info.verdict, object, caller, function);
    return obtain(request, caller);
  }
  // One stack for both: it is the same call that allocates and frees.
  const StackId stack = record_stack(caller);
  void* const moved = obtain_as(request, stack);
  if (moved == nullptr) return nullptr;
  heap::move_contents(moved, object, std::min(info.bytes, request.bytes));
  release_as(object, request.by, stack, caller, function);
  return moved;
}

}  // namespace penumbra::preload
