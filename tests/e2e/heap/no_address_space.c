// No room for a shadow of either kind (here: a limit on address space, set before exec): one line, and the program runs
// with the C library's heap.
//
// EXPECT: ^penumbra: no room for any shadow .*heap and libc checks are off$
// NEVER: BUG
// STDOUT: glibc: 40 of 33
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char** argv) {
  if (argc == 1) {
    const struct rlimit limit = {(rlim_t)96 << 20, (rlim_t)96 << 20};
    // The limit is the next process's: in this one the shadow is there already. By the instruction itself, because
    // setrlimit and syscall add what Penumbra weighs.
    register void* old asm("r10") = NULL;
    long result;
    asm volatile("syscall"
                 : "=a"(result)
                 : "a"(SYS_prlimit64), "D"(0), "S"(RLIMIT_AS), "d"(&limit), "r"(old)
                 : "rcx", "r11", "memory");
    if (result != 0) return 2;
    char* const again[] = {argv[0], "again", NULL};
    execv("/proc/self/exe", again);
    return 3;
  }
  void* p = malloc(33);
  printf("glibc: %zu of 33\n", malloc_usable_size(p));
  free(p);
  return 0;
}
