// An RCU provider for a program that has no readers: every grace period is over as soon as one asks.
//
// What is left of the cost of a deferred free is queueing and running it, in batches of 500 as the kernel's
// kvfree_rcu bulk does (a page of pointers, kernel/rcu/tree.c), on the thread that frees. liburcu's own
// threads would run on the second CPU and sleep 10 ms between batches, which would drown what is measured.
//
// zone: hosted
#pragma once

#include <cstddef>

namespace penumbra::bench::vmalloc::quiescent_rcu {

// Lies inside the object that is to be freed; 16 bytes.
struct Head {
  Head* next;
  void (*function)(void* head);
};

inline constexpr std::size_t kBatch = 500;

struct Queue {
  Head* first = nullptr;
  std::size_t size = 0;
};

inline thread_local Queue queue;

// Runs what this thread has queued.
inline void barrier() {
  Head* head = queue.first;
  queue = {};
  while (head != nullptr) {
    Head* const next = head->next;  // the function frees the head
    head->function(head);
    head = next;
  }
}

inline void call_rcu(void* memory, void (*function)(void* head)) {
  auto* const head = static_cast<Head*>(memory);
  *head = {queue.first, function};
  queue.first = head;
  if (++queue.size == kBatch) barrier();
}

inline void synchronize_rcu() {}

}  // namespace penumbra::bench::vmalloc::quiescent_rcu
