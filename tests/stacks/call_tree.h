// Random call trees over frames of different shapes: with and without frame pointer, small and large, of variable size.
//
// zone: hosted
#pragma once

#include <functional>
#include <random>

namespace penumbra::testing {

// Calls itself at random down to `max_depth`, comes back, calls again, and runs `visit` at every place it stands.
class CallTree {
 public:
  CallTree(unsigned seed, int max_depth, std::function<void()> visit)
      : random_(seed), max_depth_(max_depth), visit_(std::move(visit)) {}

  // About `steps` visits.
  void run(int steps) {
    steps_left_ = steps;
    while (steps_left_ > 0) enter(0);
  }

 private:
  void enter(int depth) {
    switch (random_() % 4) {
      case 0: return small(depth);
      case 1: return large(depth);
      case 2: return variable(depth);
      default: return two_places(depth);
    }
  }

  void go_on(int depth) {
    for (int i = static_cast<int>(random_() % 3); i >= 0 && steps_left_ > 0; --i) {
      --steps_left_;
      visit_();
      // Downwards more often than not, so that deep stacks are reached.
      if (depth < max_depth_ && random_() % 8 != 0) enter(depth + 1);
    }
  }

  __attribute__((noinline)) void small(int depth) {
    go_on(depth);
    asm volatile("");
  }
  __attribute__((noinline)) void large(int depth) {
    char local[700];
    asm volatile("" : : "r"(local) : "memory");
    go_on(depth);
    asm volatile("" : : "r"(local) : "memory");
  }
  __attribute__((noinline)) void variable(int depth) {
    void* const local = __builtin_alloca(16 + random_() % 300);
    go_on(depth);
    asm volatile("" : : "r"(local) : "memory");
  }
  // The same stack pointer and the same callee, from two return addresses.
  __attribute__((noinline)) void two_places(int depth) {
    go_on(depth);
    asm volatile("");
    go_on(depth);
    asm volatile("");
  }

  std::mt19937 random_;
  int max_depth_;
  std::function<void()> visit_;
  int steps_left_ = 0;
};

}  // namespace penumbra::testing
