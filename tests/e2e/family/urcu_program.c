/* penumbra_kvfree_rcu() with a flavour of liburcu (FLAVOUR is its header): readers never see a freed object, whichever
 * form frees it, and after the last grace period all objects are freed. */
#include FLAVOUR

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include <penumbra/penumbra-urcu.h>
#include <sanitizer/asan_interface.h>

#define ROUNDS 600

struct object {
  long before;
  struct rcu_head head;
  long after;
};

static struct object *current;
static int stop;
static long bad, seen;

static struct object *fresh(long value) {
  struct object *object = penumbra_vmalloc(sizeof *object);
  object->before = object->after = value;
  return object;
}

static void *read_all_the_time(void *unused) {
  rcu_register_thread();
  while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
    rcu_read_lock();
    const struct object *object = rcu_dereference(current);
    for (int i = 0; i < 20; ++i) {
      if (__asan_region_is_poisoned((void *)object, sizeof *object) != NULL || object->before != object->after) ++bad;
    }
    rcu_read_unlock();
    __atomic_fetch_add(&seen, 1, __ATOMIC_RELAXED);
#ifdef QUIESCENT
    rcu_quiescent_state();
#endif
  }
  rcu_unregister_thread();
  return unused;
}

int main(void) {
  rcu_register_thread();
  if (penumbra_use_urcu() != 0) return 3;
  current = fresh(0);
  pthread_t reader;
  pthread_create(&reader, NULL, read_all_the_time, NULL);
  while (__atomic_load_n(&seen, __ATOMIC_RELAXED) == 0) {
    sched_yield();
#ifdef QUIESCENT
    rcu_quiescent_state();
#endif
  }
  for (long round = 1; round <= ROUNDS; ++round) {
    struct object *old = current;
    rcu_assign_pointer(current, fresh(round));
    const int error = round % 2 != 0 ? penumbra_kvfree_rcu(old) : penumbra_kvfree_rcu_head(old, &old->head);
    if (error != 0) ++bad;
#ifdef QUIESCENT
    rcu_quiescent_state();
#endif
  }
  __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
#ifdef QUIESCENT
  rcu_thread_offline();
#endif
  pthread_join(reader, NULL);
#ifdef QUIESCENT
  rcu_thread_online();
#endif
  rcu_barrier();
  struct penumbra_stats stats;
  penumbra_get_stats(&stats, sizeof stats);
  if (bad != 0 || seen == 0 || penumbra_kvfree_rcu(NULL) != 0) {
    fprintf(stderr, "%ld bad of %ld reads\n", bad, seen);
    return 1;
  }
  /* The last object is live; the heap's large objects are areas as well. */
  if (__asan_region_is_poisoned(current, sizeof *current) != NULL) return 4;
  const uint64_t live = stats.live_areas;
  penumbra_vfree(current);
  penumbra_get_stats(&stats, sizeof stats);
  if (stats.live_areas != live - 1 || live > 64) {
    fprintf(stderr, "%lu areas are live\n", (unsigned long)live);
    return 5;
  }
  rcu_unregister_thread();
  return 0;
}
