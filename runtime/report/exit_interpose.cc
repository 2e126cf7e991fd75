// The ends of a process that run no handler of ours: _exit and _Exit by name.
//
// zone: signal-safe
#include "runtime/base/export.h"
#include "runtime/base/os_process.h"
#include "runtime/report/exit_status.h"

PENUMBRA_EXPORT __attribute__((noreturn)) void _exit(int status) {
  penumbra::report::end_now(status);
}

PENUMBRA_EXPORT __attribute__((noreturn)) void _Exit(int status) {
  penumbra::report::end_now(status);
}
