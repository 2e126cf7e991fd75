// kvfree_rcu(): an object that is freed after a grace period of the program's own RCU (memory ruling 19).
//
// The provider is a pair of functions of the program, call_rcu and synchronize_rcu; without one nothing is
// freed. With the head inside the object, the object waits in the provider's own queue and the call never
// sleeps. Without a head a node from here stands for it; when there is no memory for a node, the caller waits
// for the grace period itself.
//
// What freeing means is the owner's affair (a hook), and so is what to say when the object was freed
// meanwhile by a bug: it shows in the callback, on the provider's thread. A provider's callback carries
// nothing but the head, so there is one set of hooks and one provider in a process.
//
// zone: nomalloc
#pragma once

#include "runtime/base/address.h"

#include <cstddef>

namespace penumbra::region {

struct RcuProvider {
  // Calls function(head) once every reader that runs now has left its section.
  void (*call_rcu)(void* head, void (*function)(void* head)) = nullptr;
  // Returns when every reader that ran at the call has left its section.
  void (*synchronize_rcu)() = nullptr;
};

struct RcuHooks {
  void (*free_object)(AppAddr object) = nullptr;
  // The begin of the object that `inside` lies in, null if there is none. May wait, not sleep for long.
  AppAddr (*object_of)(AppAddr inside) = nullptr;
};

// Once, before the first free.
void rcu_init(const RcuHooks& hooks);
// Both functions or none. May be called at any time; frees that wait stay with the provider they went to.
void rcu_set_provider(const RcuProvider& provider);
bool rcu_has_provider();

// 0 when the object will be freed, ENOSYS without a provider. May wait for a grace period, so never inside a
// reader's section.
int rcu_free_later(AppAddr object);
// The same for the object that `head` lies in, without ever waiting. The head is as large as the provider
// needs.
int rcu_free_later_by_head(void* head);

void rcu_fork_prepare();
void rcu_fork_parent();
void rcu_fork_child();

}  // namespace penumbra::region
