// What must happen when threads and processes begin and end.
//
// Thread end: a thread-specific key whose destructor re-arms itself until the last round, so that what the
// program's own destructors free is still batched, then flushes. What is freed even later goes past the
// batch.
//
// Fork: our handlers are the first that are registered, hence the last to run before a fork and the first
// after it: the program's own handlers may allocate. Locks are taken top down, heap then regions. A child
// made by clone or _Fork ran no handler; it is found by its wiped page (runtime/base/thread_id.h), and its
// locks, which threads that do not exist in it may hold, are reset.
//
// zone: nomalloc
#pragma once

namespace penumbra::runtime {

// Once, at start, when the heap is ours.
void init_threads();

#if PENUMBRA_VALIDATE > 0
namespace internal {
extern thread_local unsigned t_no_malloc;
}

// While one of these lives, an allocation by this thread is a failed check: reports and signal paths must not
// need any. Costs nothing with validate=off.
class NoMallocScope {
 public:
  NoMallocScope() { ++internal::t_no_malloc; }

  ~NoMallocScope() { --internal::t_no_malloc; }

  NoMallocScope(const NoMallocScope&) = delete;
  NoMallocScope& operator=(const NoMallocScope&) = delete;
};

inline bool may_allocate() {
  return internal::t_no_malloc == 0;
}
#else
class NoMallocScope {
 public:
  NoMallocScope() {}

  ~NoMallocScope() {}
};

inline bool may_allocate() {
  return true;
}
#endif

}  // namespace penumbra::runtime
