/* Starts a program by the function that is named: exec_family FUNCTION PROGRAM [ARGUMENT...]
 *
 * With FUNCTION `vfork+NAME` it is started from a vfork child, whose status becomes ours; the parent's environment must
 * be the same afterwards. The errno of a failed start is printed, and the status is 200. */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

static int wait_for(pid_t pid) {
  int status;
  if (waitpid(pid, &status, 0) != pid) return 201;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int start(const char* function, char** words) {
  const char* program = words[0];
  pid_t pid;
  int error;
  if (strcmp(function, "execve") == 0) return execve(program, words, environ);
  if (strcmp(function, "execv") == 0) return execv(program, words);
  if (strcmp(function, "execvp") == 0) return execvp(program, words);
  if (strcmp(function, "execvpe") == 0) return execvpe(program, words, environ);
  if (strcmp(function, "execl") == 0) return execl(program, program, words[1], (char*)NULL);
  if (strcmp(function, "execlp") == 0) return execlp(program, program, words[1], (char*)NULL);
  if (strcmp(function, "execle") == 0) {
    if (words[1] == NULL) return execle(program, program, (char*)NULL, environ);
    return execle(program, program, words[1], (char*)NULL, environ);
  }
  if (strcmp(function, "execveat") == 0) return execveat(AT_FDCWD, program, words, environ, 0);
  if (strcmp(function, "fexecve") == 0) return fexecve(open(program, O_RDONLY), words, environ);
  if (strcmp(function, "posix_spawn") == 0) {
    error = posix_spawn(&pid, program, NULL, NULL, words, environ);
  } else if (strcmp(function, "posix_spawnp") == 0) {
    error = posix_spawnp(&pid, program, NULL, NULL, words, environ);
  } else {
    return -2;
  }
  if (error == 0) exit(wait_for(pid));
  errno = error;
  return -1;
}

int main(int argc, char** argv) {
  if (argc < 3) return 202;
  const char* function = argv[1];
  if (strncmp(function, "vfork+", 6) == 0) {
    const char* before = getenv("LD_PRELOAD");
    const pid_t pid = vfork();
    if (pid == 0) {
      start(function + 6, argv + 2);
      _exit(200);
    }
    const int status = wait_for(pid);
    const char* after = getenv("LD_PRELOAD");
    return before == after ? status : 203;
  }
  start(function, argv + 2);
  printf("%s\n", strerrorname_np(errno));
  return 200;
}
