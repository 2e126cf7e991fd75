// Compiled without checks: ways out of frames that nobody announces, and a look at the stack.
#define _FORTIFY_SOURCE 2  // makes longjmp __longjmp_chk below
#include "support.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

extern "C" {

void plain_throw(int value) { throw value; }

void plain_checked_longjmp(jmp_buf buffer) { longjmp(buffer, 1); }

void plain_siglongjmp(sigjmp_buf buffer) { siglongjmp(buffer, 1); }

void plain_setcontext(ucontext_t* to) { setcontext(to); }

void plain_thread_exit(void) { pthread_exit(nullptr); }

void plain_exec_true(void) {
  char* const argv[] = {const_cast<char*>("true"), nullptr};
  char* const envp[] = {nullptr};
  execve("/bin/true", argv, envp);
  _exit(1);
}

void plain_use(void* memory) { asm volatile("" : : "r"(memory) : "memory"); }

void plain_expect_clean_below(const char* where, size_t bytes) {
  char* const frame = static_cast<char*>(__builtin_frame_address(0));
  if (void* bad = __asan_region_is_poisoned(frame - bytes, bytes - 512)) {
    printf("%s: stale poison %ld bytes below the frame\n", where, static_cast<long>(frame - static_cast<char*>(bad)));
    exit(1);
  }
}

}
