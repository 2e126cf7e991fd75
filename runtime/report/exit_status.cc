#include "runtime/report/exit_status.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>

#include "runtime/base/export.h"
#include "runtime/base/os_process.h"
#include "runtime/report/task.h"

extern "C" int __cxa_at_quick_exit(void (*function)(void*), void* dso);

namespace penumbra::report {
namespace {

constinit std::atomic<int> g_exitcode{0};
// The process that this memory belongs to, and whether it reported.
constinit std::atomic<int> g_owner{0};
constinit std::atomic<bool> g_owner_reported{false};
// A guest in this memory that reported: a vfork child, or a child that was made without our fork hook.
constinit std::atomic<int> g_guest_reporter{0};
using EndHook = void (*)();
constinit EndHook g_before_end = nullptr;

void end_last(int status, void*) {
  if (g_before_end != nullptr) g_before_end();
  if (final_status(status) == status) return;
  // What exit() does between its last handler and the end.
  fcloseall();
  os::exit_process(final_status(status));
}

void end_quick(void*) {
  if (g_before_end != nullptr) g_before_end();
  // The handler is not told the status; only a changed one matters here.
  if (has_reported() && g_exitcode.load(std::memory_order_relaxed) != 0) os::exit_process(final_status(0));
}

}  // namespace

void init_exit_status(int exitcode) {
  g_exitcode.store(exitcode, std::memory_order_relaxed);
  g_owner.store(current_task().pid, std::memory_order_relaxed);
}

void forget_reported_after_fork() {
  g_owner_reported.store(false, std::memory_order_relaxed);
  g_owner.store(current_task().pid, std::memory_order_relaxed);
}

void arm_exit_handler(void (*before_end)()) {
  g_before_end = before_end;
  on_exit(end_last, nullptr);
  __cxa_at_quick_exit(end_quick, nullptr);
}

bool owns_memory() {
  return current_task().pid == g_owner.load(std::memory_order_relaxed);
}

void mark_reported() {
  const int me = current_task().pid;
  if (me == g_owner.load(std::memory_order_relaxed)) {
    g_owner_reported.store(true, std::memory_order_relaxed);
  } else {
    g_guest_reporter.store(me, std::memory_order_relaxed);
  }
}

bool has_reported() {
  const int me = current_task().pid;
  if (me == g_owner.load(std::memory_order_relaxed)) return g_owner_reported.load(std::memory_order_relaxed);
  return me == g_guest_reporter.load(std::memory_order_relaxed);
}

int final_status(int status) {
  const int exitcode = g_exitcode.load(std::memory_order_relaxed);
  return exitcode != 0 && has_reported() ? exitcode : status;
}

void end_now(int status) {
  if (g_before_end != nullptr) g_before_end();
  os::exit_process(final_status(status));
}

void end_in_panic() {
  if (g_before_end != nullptr) g_before_end();
  const int exitcode = g_exitcode.load(std::memory_order_relaxed);
  if (exitcode == 0) os::abort_now();
  os::exit_process(exitcode);
}

}  // namespace penumbra::report
