/* Lets penumbra_kvfree_rcu() wait for liburcu's grace periods, whichever flavour the program uses.
 *
 * libpenumbra does not link liburcu: the program does, and says so once, before its first penumbra_kvfree_rcu():
 *
 *     #include <urcu.h>                     (or urcu-qsbr.h, urcu-bp.h, or urcu.h under RCU_MB or RCU_SIGNAL)
 *     #include <penumbra/penumbra-urcu.h>
 *     ...
 *     penumbra_use_urcu();
 *
 * The flavour is the one whose names call_rcu and synchronize_rcu stand for where this header is included. A program
 * that includes liburcu with URCU_API_MAP undefined passes two functions of its own to penumbra_set_rcu() instead.
 */
#ifndef PENUMBRA_URCU_H
#define PENUMBRA_URCU_H

#if !defined(call_rcu) || !defined(synchronize_rcu)
#error "include one flavour of liburcu, such as <urcu.h>, before <penumbra/penumbra-urcu.h>"
#endif

#include <penumbra/penumbra.h>

static inline void penumbra_urcu_call(void* head, void (*function)(void* head)) {
  /* liburcu hands back the pointer that it was given, and a pointer is a pointer to the machine. */
  call_rcu((struct rcu_head*)head, (void (*)(struct rcu_head*))(void (*)(void))function);
}

static inline void penumbra_urcu_synchronize(void) {
  synchronize_rcu();
}

static inline int penumbra_use_urcu(void) {
  return penumbra_set_rcu(penumbra_urcu_call, penumbra_urcu_synchronize);
}

#endif
