/* What a program's own SIGSEGV handler sees: signal, code, address, place in the function, registers; and that it may go on
   elsewhere, change registers, look at its stack, or leave by longjmp. The output is the same when the code was moved. */
#include <execinfo.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

int read_at(const volatile int *p);
void write_at(volatile long *p, long value);
extern const char read_at_fault[], read_at_end[], read_at_elsewhere[], write_at_end[];

/* The flags are live across the access of read_at, so that a check has to save them; the handler must see them all the same.
   In write_at nothing needs them: a check may have changed them. */
__asm__(
    ".text\n.type read_at,@function\nread_at:\n.cfi_startproc\n"
    "cmp %rdi,%rdi\nread_at_fault: mov (%rdi),%eax\nje 1f\nmov $1,%eax\n1: ret\n"
    "read_at_elsewhere: mov $42,%eax\nret\nread_at_end:\n.cfi_endproc\n.size read_at,.-read_at\n"
    ".type write_at,@function\nwrite_at:\n.cfi_startproc\n"
    "mov %rsi,(%rdi)\nret\nwrite_at_end:\n.cfi_endproc\n.size write_at,.-write_at\n");

static sigjmp_buf jump;
static int how;
static int count;

static void on_fault(int number, siginfo_t *info, void *state) {
  ucontext_t *context = state;
  greg_t *r = context->uc_mcontext.gregs;
  uintptr_t pc = (uintptr_t)r[REG_RIP];
  const char *where = "elsewhere";
  long offset = 0;
  if (pc >= (uintptr_t)read_at && pc < (uintptr_t)read_at_end) where = "read_at", offset = (long)(pc - (uintptr_t)read_at);
  if (pc >= (uintptr_t)write_at && pc < (uintptr_t)write_at_end) where = "write_at", offset = (long)(pc - (uintptr_t)write_at);
  void *frames[64];
  int depth = backtrace(frames, 64);
  printf("signal %d code %d address %p in %s+%ld zero %d rdi %lx deep %d\n", number, info->si_code, info->si_addr, where, offset,
         where[0] == 'r' && ((r[REG_EFL] >> 6) & 1), (unsigned long)r[REG_RDI], depth > 3);
  count++;
  switch (how) {
    case 0: r[REG_RIP] = (greg_t)(uintptr_t)read_at_elsewhere; break;
    case 1: siglongjmp(jump, 7);
    case 2: r[REG_RDI] = r[REG_RDX]; break; /* the same instruction again, with another address */
  }
}

int main(void) {
  close(2); /* what Penumbra has to say about null and wild pointers is not the subject */
  struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
  sigaction(SIGSEGV, &action, NULL);
  sigaction(SIGBUS, &action, NULL);
  int *closed = mmap((void *)0x10000000, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  const int *places[] = {closed, (int *)8, (int *)0x4141414141414141, (int *)0xffff800000000000, (int *)0x7ffffffff000};
  for (unsigned i = 0; i < sizeof places / sizeof *places; i++) {
    how = 0;
    printf("elsewhere %d\n", read_at(places[i]));
    how = 1;
    int back = sigsetjmp(jump, 1);
    if (back == 0) write_at((long *)places[i], 1);
    printf("jumped %d\n", back);
  }
  int good = 77;
  how = 2;
  __asm__ volatile("" : : "d"(&good));
  int (*call)(const volatile int *, long, const volatile int *) = (int (*)(const volatile int *, long, const volatile int *))read_at;
  printf("again %d\n", call(closed, 0, &good));
  printf("faults %d\n", count);
  return 0;
}
