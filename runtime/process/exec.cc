#include "runtime/process/exec.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/base/config.h"
#include "runtime/base/export.h"
#include "runtime/base/os_linux.h"
#include "runtime/base/raw_memory.h"
#include "runtime/base/text_buffer.h"
#include "runtime/process/preload_list.h"
#include "runtime/process/program_file.h"

namespace penumbra::process {
namespace {

using SpawnFunction = int (*)(pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*,
                              char* const*, char* const*);

// Written once by init_exec, before the program's first thread.
constinit ExecHooks g_hooks;
constinit SpawnFunction g_posix_spawn = nullptr;
constinit SpawnFunction g_posix_spawnp = nullptr;

constexpr char kShell[] = "/bin/sh";
// What glibc searches when PATH is not set (confstr(_CS_PATH)).
constexpr char kDefaultPath[] = "/bin:/usr/bin";

void call(void (*hook)()) {
  if (hook != nullptr) hook();
}

int fail(int error) {
  errno = error;
  return -1;
}

// Bytes needed for an environment without us, or 0 where the child keeps what it was given.
std::size_t bytes_to_rebuild(int dirfd, const char* path, char* const* envp) {
  const std::size_t bytes = bytes_without_preload(envp);
  if (bytes == 0 || path == nullptr) return 0;
  FixedTextBuffer<32> by_descriptor;
  if (*path == '\0') {  // AT_EMPTY_PATH: what dirfd is open on, perhaps without permission to read
    path = by_descriptor.append("/proc/self/fd/").dec(static_cast<std::uint64_t>(dirfd)).c_str();
    dirfd = AT_FDCWD;
  }
  ProgramFile program;
  return follow_scripts(dirfd, path, program) && program.drops_preload() ? bytes : 0;
}

// Never returns on success; the errno (> 0) otherwise.
int execute(int dirfd, const char* path, char* const* argv, char* const* envp, int flags) {
  const std::size_t bytes = bytes_to_rebuild(dirfd, path, envp);
  char* const* const environment = bytes == 0 ? envp : build_without_preload(envp, __builtin_alloca(bytes));
  const bool keeps_us = bytes == 0 && bytes_without_preload(envp) != 0;
  if (!keeps_us) call(g_hooks.before);
  const os::Result result = os::execute(dirfd, path, argv, environment, flags);
  if (!keeps_us) call(g_hooks.failed);
  return result.error();
}

// A file that no kernel format claims is a script of the shell.
int execute_by_shell(const char* path, char* const* argv, char* const* envp) {
  std::size_t count = 0;
  while (argv != nullptr && argv[count] != nullptr) ++count;
  const auto rebuilt = static_cast<const char**>(__builtin_alloca((count + 3) * sizeof(char*)));
  rebuilt[0] = kShell;
  rebuilt[1] = path;
  std::size_t next = 2;
  for (std::size_t i = 1; i < count; ++i) rebuilt[next++] = argv[i];
  rebuilt[next] = nullptr;
  return execute(AT_FDCWD, kShell, const_cast<char**>(rebuilt), envp, 0);
}

int execute_or_shell(const char* path, char* const* argv, char* const* envp) {
  const int error = execute(AT_FDCWD, path, argv, envp, 0);
  return error == ENOEXEC ? execute_by_shell(path, argv, envp) : error;
}

const char* search_path() {
  const char* const path = getenv("PATH");
  return path != nullptr ? path : kDefaultPath;
}

// Calls visit(candidate) for each place where PATH has `file`, until it returns true. A file with a slash is its
// own only candidate. False where `file` is no name, with the errno in `error`.
template <class Visit>
bool visit_candidates(const char* file, int& error, Visit visit) {
  if (*file == '\0') {
    error = ENOENT;
    return false;
  }
  const std::size_t file_length = raw_length(file);
  for (std::size_t i = 0; i < file_length; ++i) {
    if (file[i] == '/') {
      visit(file);
      return true;
    }
  }
  if (file_length > NAME_MAX) {
    error = ENAMETOOLONG;
    return false;
  }
  char candidate[kMaxPath + NAME_MAX + 2];
  for (const char* folder = search_path();;) {
    std::size_t length = 0;
    while (folder[length] != '\0' && folder[length] != ':') ++length;
    if (length < kMaxPath) {
      std::size_t end = 0;
      raw_copy(candidate, folder, length);
      end += length;
      if (length > 0) candidate[end++] = '/';
      raw_copy(candidate + end, file, file_length + 1);
      if (visit(candidate)) return true;
    }
    if (folder[length] == '\0') return true;
    folder += length + 1;
  }
}

// As glibc's __execvpe_common: some errors mean "look further", and a permission denied on the way is remembered.
int execute_by_path(const char* file, char* const* argv, char* const* envp) {
  int error = ENOENT;
  bool denied = false;
  visit_candidates(file, error, [&](const char* candidate) {
    error = execute_or_shell(candidate, argv, envp);
    switch (error) {
      case EACCES: denied = true; return false;
      case ENOENT:
      case ESTALE:
      case ENOTDIR:
      case ENODEV:
      case ETIMEDOUT: return false;
      default: return true;
    }
  });
  return denied && error != ENOEXEC ? EACCES : error;
}

int spawn(SpawnFunction real, const char* name, pid_t* pid, const char* path, const char* inspected,
          const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* attributes, char* const* argv,
          char* const* envp) {
  if (real == nullptr) real = reinterpret_cast<SpawnFunction>(PENUMBRA_NEXT(name));  // called before init_exec()
  if (real == nullptr) return ENOSYS;
  const std::size_t bytes = bytes_to_rebuild(AT_FDCWD, inspected, envp);
  char* const* const environment = bytes == 0 ? envp : build_without_preload(envp, __builtin_alloca(bytes));
  return real(pid, path, actions, attributes, argv, environment);
}

// The words of execl and its relatives as an array in `argv`; 0 for `argv` only counts them, end included.
std::size_t gather_words(const char* first, va_list words, const char** argv) {
  std::size_t count = 0;
  for (const char* word = first;; word = va_arg(words, const char*)) {
    if (argv != nullptr) argv[count] = word;
    ++count;
    if (word == nullptr) return count;
  }
}

}  // namespace

void init_exec(const ExecHooks& hooks) {
  g_hooks = hooks;
  g_posix_spawn = reinterpret_cast<SpawnFunction>(PENUMBRA_NEXT("posix_spawn"));
  g_posix_spawnp = reinterpret_cast<SpawnFunction>(PENUMBRA_NEXT("posix_spawnp"));
}

}  // namespace penumbra::process

using namespace penumbra;
using namespace penumbra::process;

PENUMBRA_EXPORT int execve(const char* path, char* const argv[], char* const envp[]) {
  return fail(process::execute(AT_FDCWD, path, argv, envp, 0));
}

PENUMBRA_EXPORT int execv(const char* path, char* const argv[]) {
  return fail(process::execute(AT_FDCWD, path, argv, environ, 0));
}

PENUMBRA_EXPORT int execvpe(const char* file, char* const argv[], char* const envp[]) {
  return fail(execute_by_path(file, argv, envp));
}

PENUMBRA_EXPORT int execvp(const char* file, char* const argv[]) {
  return fail(execute_by_path(file, argv, environ));
}

PENUMBRA_EXPORT int execveat(int dirfd, const char* path, char* const argv[], char* const envp[], int flags) {
  return fail(process::execute(dirfd, path, argv, envp, flags));
}

PENUMBRA_EXPORT int fexecve(int fd, char* const argv[], char* const envp[]) {
  if (fd < 0) return fail(EINVAL);
  return fail(process::execute(fd, "", argv, envp, AT_EMPTY_PATH));
}

// The words of a variadic call, in an array on the stack of the function that says this.
#define PENUMBRA_GATHER(first, argv)                                                               \
  va_list words;                                                                                   \
  va_start(words, first);                                                                          \
  const std::size_t word_count = gather_words(first, words, nullptr);                              \
  va_end(words);                                                                                   \
  const auto argv = static_cast<const char**>(__builtin_alloca(word_count * sizeof(const char*))); \
  va_start(words, first);                                                                          \
  gather_words(first, words, argv)

PENUMBRA_EXPORT int execl(const char* path, const char* first, ...) {
  PENUMBRA_GATHER(first, argv);
  va_end(words);
  return fail(process::execute(AT_FDCWD, path, const_cast<char**>(argv), environ, 0));
}

PENUMBRA_EXPORT int execlp(const char* file, const char* first, ...) {
  PENUMBRA_GATHER(first, argv);
  va_end(words);
  return fail(execute_by_path(file, const_cast<char**>(argv), environ));
}

PENUMBRA_EXPORT int execle(const char* path, const char* first, ...) {
  PENUMBRA_GATHER(first, argv);
  char* const* const envp = va_arg(words, char* const*);
  va_end(words);
  return fail(process::execute(AT_FDCWD, path, const_cast<char**>(argv), envp, 0));
}

PENUMBRA_EXPORT int posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,
                                const posix_spawnattr_t* attributes, char* const argv[], char* const envp[]) {
  return spawn(g_posix_spawn, "posix_spawn", pid, path, path, actions, attributes, argv, envp);
}

PENUMBRA_EXPORT int posix_spawnp(pid_t* pid, const char* file, const posix_spawn_file_actions_t* actions,
                                 const posix_spawnattr_t* attributes, char* const argv[], char* const envp[]) {
  char found[kMaxPath + NAME_MAX + 2] = "/";  // where PATH has nothing: a folder, which is no program
  int error = 0;
  visit_candidates(file, error, [&](const char* candidate) {
    const std::size_t length = raw_length(candidate);
    if (length >= sizeof found || !os::may_execute(candidate)) return false;
    raw_copy(found, candidate, length + 1);
    return true;
  });
  return spawn(g_posix_spawnp, "posix_spawnp", pid, file, found, actions, attributes, argv, envp);
}
