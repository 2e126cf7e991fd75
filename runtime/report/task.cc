#include "runtime/report/task.h"

#include "runtime/base/os_linux.h"

namespace penumbra::report {
namespace {

// What was true before the process was sealed. A forked child that is sealed shows its parent's numbers.
constinit thread_local Task t_task;

}  // namespace

Task current_task() {
  if (!os::is_sealed()) t_task = Task{os::getpid(), os::gettid()};
  return t_task;
}

}  // namespace penumbra::report
