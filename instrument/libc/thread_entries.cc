// pthread_join and its relatives: who keeps the stacks of threads learns here which threads are gone.
//
// A thread that was joined is one that the kernel has left, so its stack is nobody's when the call returns. pthread_join
// may be cancelled: then it does not return, and nothing was joined. C11's thrd_join calls libc's own, for threads that
// thrd_create began, on stacks that libc gave them.
//
// zone: nomalloc
#include <pthread.h>
#include <time.h>

#include "instrument/libc/entry.h"
#include "runtime/base/address.h"

namespace penumbra::libc {
namespace {

int joined(int error, pthread_t thread, const CodeContext& caller) {
  if (error == 0 && state.threads.joined != nullptr) state.threads.joined(thread, caller);
  return error;
}

}  // namespace

PENUMBRA_LIBC_DECLARE(int, pthread_join, (pthread_t thread, void** result))
PENUMBRA_LIBC_DECLARE(int, pthread_tryjoin_np, (pthread_t thread, void** result))
PENUMBRA_LIBC_DECLARE(int, pthread_timedjoin_np, (pthread_t thread, void** result, const timespec* until))
PENUMBRA_LIBC_DECLARE(int, pthread_clockjoin_np,
                      (pthread_t thread, void** result, clockid_t clock, const timespec* until))
PENUMBRA_LIBC_DECLARE(int, pthread_detach, (pthread_t thread))
PENUMBRA_LIBC_DECLARE(int, pthread_getattr_np, (pthread_t thread, pthread_attr_t* attributes))

int entry_pthread_join(pthread_t thread, void** result) {
  return joined(real_pthread_join(thread, result), thread, PENUMBRA_CALLER());
}

int entry_pthread_tryjoin_np(pthread_t thread, void** result) {
  return joined(real_pthread_tryjoin_np(thread, result), thread, PENUMBRA_CALLER());
}

int entry_pthread_timedjoin_np(pthread_t thread, void** result, const timespec* until) {
  return joined(real_pthread_timedjoin_np(thread, result, until), thread, PENUMBRA_CALLER());
}

int entry_pthread_clockjoin_np(pthread_t thread, void** result, clockid_t clock, const timespec* until) {
  return joined(real_pthread_clockjoin_np(thread, result, clock, until), thread, PENUMBRA_CALLER());
}

int entry_pthread_detach(pthread_t thread) {
  const int error = real_pthread_detach(thread);
  if (error == 0 && state.threads.detached != nullptr) state.threads.detached(thread);
  return error;
}

int entry_pthread_getattr_np(pthread_t thread, pthread_attr_t* attributes) {
  const int error = real_pthread_getattr_np(thread, attributes);
  if (error == 0 && state.threads.described != nullptr) state.threads.described(thread, *attributes);
  return error;
}

}  // namespace penumbra::libc
