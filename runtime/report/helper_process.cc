#include "runtime/report/helper_process.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "runtime/base/config.h"
#include "runtime/base/locks.h"
#include "runtime/base/os_process.h"
#include "runtime/base/raw_memory.h"
#include "runtime/base/symbolize_protocol.h"
#include "runtime/base/text_buffer.h"
#include "runtime/report/modules.h"
#include "runtime/report/proc_maps.h"

extern "C" int penumbra_clone(unsigned long flags, void* top, int (*function)(void*), void* argument);

namespace penumbra::report {
namespace {

constexpr int kLowestOwnDescriptor = 900;  // as in sink.cc
constexpr std::size_t kStackBytes = 8 << 10;
constexpr int kSignals = 64;

struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;

  bool operator==(const FileIdentity&) const = default;
};

constinit char g_path[1024] = {};
// Two threads share the stacks below: the second goes without a helper.
constinit Mutex g_starting;
constinit FileIdentity g_identity;

// What the two children share with us while we are suspended.
struct Plan {
  int input;  // the helper's ends
  int output;
  const char* const* arguments;
  int helper_pid;
};

alignas(16) constinit std::uint8_t g_intermediate_stack[kStackBytes] = {};
alignas(16) constinit std::uint8_t g_helper_stack[kStackBytes] = {};

long as_long(const void* p) {
  return reinterpret_cast<long>(p);
}

bool identify(const char* path, FileIdentity& identity) {
  struct stat status;
  if (!os::Result(os::raw_syscall(SYS_newfstatat, AT_FDCWD, as_long(path), as_long(&status), 0)).ok()) return false;
  identity = {status.st_dev, status.st_ino};
  return S_ISREG(status.st_mode);
}

// From here to exec, in the helper: signals as in a fresh process, the pipes as stdin and stdout, nothing else open.
int run_helper(void* argument) {
  const Plan& plan = *static_cast<const Plan*>(argument);
  for (int signal = 1; signal <= kSignals; ++signal) os::default_signal(signal);
  os::restore_signals(0);
  // The pipe ends lie above 2, so none is lost by the other's move.
  os::raw_syscall(SYS_dup2, plan.input, 0);
  os::raw_syscall(SYS_dup2, plan.output, 1);
  os::raw_syscall(SYS_close, 2);
  os::raw_syscall(SYS_openat, AT_FDCWD, as_long("/dev/null"), O_WRONLY);
  os::raw_syscall(SYS_close_range, 3, ~0u, 0);
  const char* argv[kMostHelperArguments + 2] = {g_path};
  for (std::size_t n = 0; n < kMostHelperArguments && plan.arguments[n] != nullptr; ++n)
    argv[n + 1] = plan.arguments[n];
  const char* const envp[] = {"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C", nullptr};
  os::raw_syscall(SYS_execve, as_long(g_path), as_long(argv), as_long(envp));
  return 127;
}

int run_intermediate(void* argument) {
  auto& plan = *static_cast<Plan*>(argument);
  plan.helper_pid = penumbra_clone(CLONE_VM | CLONE_VFORK | SIGCHLD, g_helper_stack + kStackBytes, run_helper, &plan);
  return 0;
}

// The helper of init or of a subreaper would become a child of it when the intermediate ends.
bool adopts_orphans() {
  int is_subreaper = 0;
  os::raw_syscall(SYS_prctl, PR_GET_CHILD_SUBREAPER, as_long(&is_subreaper));
  return is_subreaper != 0 || os::getpid() == 1;
}

// The absolute path of the file that this very code is mapped from; empty where it cannot be had.
void find_own_path(char (&path)[sizeof(Mapping::path)]) {
  path[0] = '\0';
  for_each_mapping(
      [](const Mapping& mapping, void* cookie) {
        const auto here = reinterpret_cast<std::uintptr_t>(&find_helper);
        if (here < mapping.begin || here >= mapping.end) return true;
        raw_copy(cookie, mapping.path, sizeof mapping.path);
        return false;
      },
      path);
}

void close_pair(int (&ends)[2]) {
  os::close(ends[0]).ignore();
  os::close(ends[1]).ignore();
}

bool open_pipes(int (&requests)[2], int (&answers)[2]) {
  if (!os::pipe(requests).ok()) return false;
  if (!os::pipe(answers).ok()) {
    close_pair(requests);
    return false;
  }
  for (int* end : {&requests[0], &requests[1], &answers[0], &answers[1]}) {
    *end = os::move_high(*end, kLowestOwnDescriptor);
  }
  if (requests[0] > 2 && answers[1] > 2) return true;
  close_pair(requests);
  close_pair(answers);
  return false;
}

}  // namespace

void find_helper() {
  char library[sizeof(Mapping::path)];
  find_own_path(library);
  if (library[0] != '/') return;
  std::size_t folder = raw_length(library);
  while (library[folder - 1] != '/') --folder;
  for (const char* from_library : kLauncherFromLibrary) {
    TextBuffer path(g_path, sizeof g_path);
    path.append(library, folder).append(from_library);
    path.c_str();
    if (path.lost() == 0 && identify(g_path, g_identity)) return;
  }
  g_path[0] = '\0';
}

namespace {

bool start_alone(Helper& helper, const char* const* arguments) {
  FileIdentity now;
  if (g_path[0] == '\0' || os::is_sealed() || adopts_orphans()) return false;
  if (!identify(g_path, now) || now != g_identity) return false;
  int requests[2];
  int answers[2];
  if (!open_pipes(requests, answers)) return false;
  Plan plan{requests[0], answers[1], arguments, 0};
  const os::SignalSet old = os::block_signals(~os::SignalSet{0});
  const int intermediate =
      penumbra_clone(CLONE_VM | CLONE_VFORK, g_intermediate_stack + kStackBytes, run_intermediate, &plan);
  if (intermediate > 0) {
    int status = 0;
    os::raw_syscall(SYS_wait4, intermediate, as_long(&status), __WCLONE);
  }
  os::restore_signals(old);
  os::close(requests[0]).ignore();
  os::close(answers[1]).ignore();
  if (intermediate <= 0 || plan.helper_pid <= 0) {
    os::close(requests[1]).ignore();
    os::close(answers[0]).ignore();
    return false;
  }
  helper = {requests[1], answers[0], plan.helper_pid};
  return true;
}

}  // namespace

bool start_helper(Helper& helper, const char* const* arguments) {
  if (!g_starting.try_lock()) return false;
  const bool is_started = start_alone(helper, arguments);
  g_starting.unlock();
  return is_started;
}

void stop_helper(Helper& helper, bool kill) {
  if (kill) os::raw_syscall(SYS_kill, helper.pid, SIGKILL);
  os::close(helper.to).ignore();
  os::close(helper.from).ignore();
  helper = Helper{};
}

}  // namespace penumbra::report
