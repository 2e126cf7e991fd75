// Which thread of which process this is, also where the kernel may no longer be asked (process ruling 18).
//
// zone: signal-safe
#pragma once

namespace penumbra::report {

struct Task {
  int pid = 0;
  int tid = 0;  // 0: the process is sealed, and this thread was never asked before
};

Task current_task();

}  // namespace penumbra::report
