#include "runtime/threads.h"

#include "allocator/heap/heap.h"
#include "allocator/region/regions.h"
#include "allocator/region/stack_pool.h"
#include "instrument/abi/leaving.h"
#include "instrument/abi/stack.h"
#include "instrument/load/load.h"
#include "runtime/base/thread_id.h"
#include "runtime/family_api.h"
#include "runtime/pthread_stacks.h"
#include "runtime/report/report.h"
#include "runtime/signals/signals.h"
#include "runtime/stacks/stacks.h"

#include <limits.h>
#include <pthread.h>

#include <cstdint>

namespace penumbra::runtime {

#if PENUMBRA_VALIDATE > 0
namespace internal {
constinit thread_local unsigned t_no_malloc = 0;
}
#endif

namespace {

constinit pthread_key_t g_exit_key = 0;

// The value is the number of the round, 1 in the first.
void at_thread_exit(void* round) {
  const auto n = reinterpret_cast<std::uintptr_t>(round);
  if (n < PTHREAD_DESTRUCTOR_ITERATIONS) {
    if (pthread_setspecific(g_exit_key, reinterpret_cast<void*>(n + 1)) == 0) return;
  }
  abi::end_thread_stack();
  heap::thread_exit();
}

void arm_thread_exit() {
  pthread_setspecific(g_exit_key, reinterpret_cast<void*>(std::uintptr_t{1}));
}

void before_fork() {
  abi::fork_prepare();
  family_fork_prepare();
  heap::fork_prepare();
  region::process_stacks().fork_prepare();
  region::fork_prepare();
}

void after_fork_in_parent() {
  region::fork_parent();
  region::process_stacks().fork_parent();
  heap::fork_parent();
  family_fork_parent();
  abi::fork_done();
}

void after_fork_in_child() {
  announce_child();
  stacks::fork_child();
  report::fork_child();
  signals::fork_child();
  load::fork_child();
  region::fork_child();
  fork_pthread_stacks_child(true);
  heap::fork_child();
  family_fork_child();
  abi::fork_done();
}

void in_unannounced_child() {
  report::fork_child();
  signals::fork_child();
  load::fork_child();
  region::fork_child();
  fork_pthread_stacks_child(false);
  heap::fork_child_unprepared();
  family_fork_child();
  abi::fork_child_unprepared();
}

}  // namespace

void init_threads() {
  init_fork_mark();
  set_unannounced_child_hook(in_unannounced_child);
  pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  if (pthread_key_create(&g_exit_key, at_thread_exit) != 0) return;
  set_new_thread_hook(arm_thread_exit);
  // The main thread has asked for its id before the hook was there. It ends by pthread_exit, if ever.
  arm_thread_exit();
}

}  // namespace penumbra::runtime
