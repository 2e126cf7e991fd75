// What handlers of all signals see of moved code, at whatever instruction they come: the same as of code that was not moved.
// Output is the same natively; each line is a claim.
#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <initializer_list>

extern char** environ;

extern "C" {
// Loads the byte at `p` again and again, with a pattern in every register that the loop does not need and the zero flag
// live across the load, until *counter is 0 or a handler moves the pc to pattern_exit. A check has no free register here.
long pattern_loop(const volatile unsigned char* p, volatile long* counter);
extern const char pattern_begin[], pattern_load[], pattern_after[], pattern_end[], pattern_exit[];
uintptr_t pattern_rsp;

int divide(int a, int b, const int* p);
extern const char divide_fault[], divide_after[];
void undefined(const char* p);
extern const char undefined_fault[];
void own_restorer();
void breakpoint(const char* p);
extern const char breakpoint_after[];
}

__asm__(R"(
        .text
        .type   pattern_loop, @function
pattern_loop:
        .cfi_startproc
        .irp    r, rbx, rbp, r12, r13, r14, r15
        push    %\r
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset \r, 0
        .endr
        mov     %rsp, pattern_rsp(%rip)
        movabs  $0x0101010101010101, %rax
        movabs  $0x0202020202020202, %rbx
        movabs  $0x0303030303030303, %rcx
        movabs  $0x0404040404040404, %rdx
        movabs  $0x0505050505050505, %rbp
        movabs  $0x0808080808080808, %r8
        movabs  $0x0909090909090909, %r9
        movabs  $0x0a0a0a0a0a0a0a5a, %r10
        movabs  $0x0b0b0b0b0b0b0b0b, %r11
        movabs  $0x0c0c0c0c0c0c0c0c, %r12
        movabs  $0x0d0d0d0d0d0d0d0d, %r13
        movabs  $0x0e0e0e0e0e0e0e0e, %r14
        movabs  $0x0f0f0f0f0f0f0f0f, %r15
        jmp     pattern_begin
        .balign 16
pattern_begin:
        cmp     %rax, %rax
pattern_load:
        mov     (%rdi), %r10b
pattern_after:
        jne     1f
        decq    (%rsi)
        jnz     pattern_begin
pattern_end:
        xor     %eax, %eax
        jmp     2f
1:      mov     $-1, %eax
        jmp     2f
pattern_exit:
        mov     $42, %eax
2:      cltq
        .irp    r, r8, r9, r10, r11, r12, r13, r14, r15, rbx, rcx, rdx, rbp
        add     %\r, %rcx
        .endr
        .irp    r, r15, r14, r13, r12, rbp, rbx
        pop     %\r
        .cfi_adjust_cfa_offset -8
        .cfi_restore \r
        .endr
        ret
        .cfi_endproc
        .size   pattern_loop, .-pattern_loop

        .type   divide, @function
divide:
        .cfi_startproc
        add     (%rdx), %edi
        mov     %edi, %eax
        cltd
divide_fault:
        idiv    %esi
divide_after:
        ret
        .cfi_endproc
        .size   divide, .-divide

        .type   undefined, @function
undefined:
        .cfi_startproc
        cmpb    $0, (%rdi)
undefined_fault:
        ud2
        ret
        .cfi_endproc
        .size   undefined, .-undefined

        .type   own_restorer, @function
own_restorer:
        mov     $15, %rax
        syscall
        .size   own_restorer, .-own_restorer

        .type   breakpoint, @function
breakpoint:
        .cfi_startproc
        cmpb    $0, (%rdi)
        int3
breakpoint_after:
        ret
        .cfi_endproc
        .size   breakpoint, .-breakpoint
)");

namespace {

long claims_failed = 0;

void claim(const char* what, bool holds) {
  printf("%s: %s\n", what, holds ? "yes" : "NO");
  claims_failed += !holds;
}

bool is_in(uintptr_t pc, const char* begin, const char* end) {
  return pc >= reinterpret_cast<uintptr_t>(begin) && pc < reinterpret_cast<uintptr_t>(end);
}

void set_handler(int signal, void (*handler)(int, siginfo_t*, void*), int flags = 0) {
  struct sigaction action {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | flags;
  sigaction(signal, &action, nullptr);
}

void start_timer(int microseconds) {
  itimerval every{};
  every.it_interval.tv_usec = every.it_value.tv_usec = microseconds;
  setitimer(ITIMER_REAL, &every, nullptr);
}

// --- every register at every instruction

volatile long hits = 0;
volatile long elsewhere = 0;
volatile long wrong = 0;
volatile long lost_callers = 0;
volatile long* stop_counter = nullptr;
constexpr long kHits = 400;

__attribute__((noinline)) long run_pattern(const volatile unsigned char* p, volatile long* counter) {
  const long result = pattern_loop(p, counter);
  __asm__ volatile("" ::: "memory");
  return result;
}

void check_pattern(int, siginfo_t*, void* context) {
  const auto& r = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const auto pc = static_cast<uintptr_t>(r[REG_RIP]);
  if (!is_in(pc, pattern_begin, pattern_end)) {
    elsewhere = elsewhere + 1;
    return;
  }
  const auto is = [](greg_t value, unsigned pattern) { return uint64_t(value) == pattern * 0x0101010101010101u; };
  bool good = is(r[REG_RAX], 1) && is(r[REG_RBX], 2) && is(r[REG_RCX], 3) && is(r[REG_RDX], 4) && is(r[REG_RBP], 5) &&
              is(r[REG_R8], 8) && is(r[REG_R9], 9) && is(r[REG_R11], 11) && is(r[REG_R12], 12) && is(r[REG_R13], 13) &&
              is(r[REG_R14], 14) && is(r[REG_R15], 15) && uint64_t(r[REG_R10]) == 0x0a0a0a0a0a0a0a5a;
  good = good && uintptr_t(r[REG_RSP]) == pattern_rsp;
  if (pc == reinterpret_cast<uintptr_t>(pattern_load) || pc == reinterpret_cast<uintptr_t>(pattern_after)) {
    good = good && ((r[REG_EFL] >> 6) & 1) != 0;
  }
  wrong = wrong + !good;
  // The caller's frame: behind ours and the kernel's comes the loop, then run_pattern.
  void* frames[16];
  const int depth = backtrace(frames, 16);
  bool has_loop = false;
  bool has_caller = false;
  for (int n = 0; n < depth; ++n) {
    const auto frame = reinterpret_cast<uintptr_t>(frames[n]);
    has_caller = has_caller || (has_loop && frame - reinterpret_cast<uintptr_t>(&run_pattern) < 128);
    has_loop = has_loop || is_in(frame, pattern_begin, pattern_end);
  }
  lost_callers = lost_callers + !(has_loop && has_caller);
  hits = hits + 1;
  if (hits >= kHits) *stop_counter = 1;
}

// A handler whose registers were restored wrongly would break the loop as well: its result is 0 or it never ends.
void test_every_register(const char* what, const volatile unsigned char* p, volatile long* counter) {
  hits = elsewhere = wrong = lost_callers = 0;
  stop_counter = counter;
  set_handler(SIGALRM, check_pattern, SA_RESTART);
  *counter = INT64_MAX;
  start_timer(150);
  const long result = run_pattern(p, counter);
  start_timer(0);
  printf("%s\n", what);
  claim(" the loop ends by itself", result == 0);
  claim(" handlers see the program and nothing else", elsewhere < kHits / 10);
  claim(" registers, stack pointer and flags are the program's", hits >= kHits && wrong == 0);
  claim(" the callers are found", lost_callers == 0);
}

// --- a handler moves the pc

void leave_pattern(int, siginfo_t*, void* context) {
  auto& r = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  if (!is_in(uintptr_t(r[REG_RIP]), pattern_begin, pattern_end)) return;
  r[REG_RIP] = greg_t(reinterpret_cast<uintptr_t>(pattern_exit));
}

void test_moved_pc(const volatile unsigned char* p, volatile long* counter) {
  set_handler(SIGALRM, leave_pattern);
  long good = 0;
  for (int n = 0; n < 100; ++n) {
    *counter = INT64_MAX;
    start_timer(200);
    good += run_pattern(p, counter) == 42;
  }
  start_timer(0);
  claim("a handler sends the program elsewhere", good == 100);
}

sigjmp_buf out;

void jump_out(int, siginfo_t*, void*) { siglongjmp(out, 1); }

void test_jumps(const volatile unsigned char* p, volatile long* counter) {
  set_handler(SIGALRM, jump_out);
  for (volatile int n = 0; n < 200; n = n + 1) {
    if (sigsetjmp(out, 1) != 0) continue;
    *counter = INT64_MAX;
    start_timer(150);
    run_pattern(p, counter);
  }
  start_timer(0);
  claim("a handler jumps out of a check", true);
}

// --- faults of the processor

int seen_signal = 0;
bool seen_address = false;
bool seen_pc = false;

void on_trap(int signal, siginfo_t* info, void* context) {
  auto& r = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  seen_signal = signal;
  const char* expected = signal == SIGFPE ? divide_fault : signal == SIGILL ? undefined_fault : breakpoint_after;
  seen_pc = uintptr_t(r[REG_RIP]) == reinterpret_cast<uintptr_t>(expected);
  seen_address = signal == SIGTRAP || info->si_addr == expected;
  if (signal == SIGFPE) {
    r[REG_RAX] = 7;
    r[REG_RIP] = greg_t(reinterpret_cast<uintptr_t>(divide_after));
  } else if (signal == SIGILL) {
    r[REG_RIP] += 2;
  }
}

void test_traps() {
  for (const int signal : {SIGFPE, SIGILL, SIGTRAP}) set_handler(signal, on_trap);
  int* const number = static_cast<int*>(malloc(sizeof(int)));
  *number = 5;
  const int result = divide(1, 0, number);
  claim("SIGFPE tells the instruction", seen_signal == SIGFPE && seen_address && seen_pc && result == 7);
  undefined(reinterpret_cast<char*>(number));
  claim("SIGILL tells the instruction", seen_signal == SIGILL && seen_address && seen_pc);
  breakpoint(reinterpret_cast<char*>(number));
  claim("SIGTRAP tells the instruction behind", seen_signal == SIGTRAP && seen_pc);
  free(number);
}

// --- exceptions

int destroyed = 0;

struct Counted {
  ~Counted() { ++destroyed; }
};

void throw_it(int signal, siginfo_t*, void*) { throw signal; }

__attribute__((noinline)) int load_through(volatile int* p) {
  Counted counted;
  return *p;
}

void test_exceptions() {
  set_handler(SIGSEGV, throw_it, SA_NODEFER);
  set_handler(SIGFPE, throw_it, SA_NODEFER);
  int caught = 0;
  for (uintptr_t address : {uintptr_t{16}, uintptr_t{0x4141414141414141}, uintptr_t{0xffff900000000000}}) {
    try {
      load_through(reinterpret_cast<volatile int*>(address));
    } catch (int signal) {
      caught += signal == SIGSEGV;
    }
  }
  int* const number = static_cast<int*>(malloc(sizeof(int)));
  *number = 0;
  try {
    Counted counted;
    divide(1, 0, number);
  } catch (int signal) {
    caught += signal == SIGFPE;
  }
  free(number);
  claim("handlers throw through moved code", caught == 4 && destroyed == 4);
  signal(SIGSEGV, SIG_DFL);
}

// --- dispositions

volatile int calls = 0;
volatile int deepest = 0;
volatile int depth = 0;

void plain_handler(int) { calls = calls + 1; }

void nesting_handler(int signal, siginfo_t*, void*) {
  depth = depth + 1;
  if (depth > deepest) deepest = depth;
  if (depth < 5) raise(signal);
  depth = depth - 1;
}

bool on_alternate_stack = false;
char* alternate = nullptr;

void stack_handler(int, siginfo_t*, void*) {
  char here;
  on_alternate_stack = &here >= alternate && &here < alternate + 65536;
}

void test_dispositions() {
  calls = 0;
  struct sigaction action {};
  action.sa_handler = plain_handler;
  action.sa_flags = int(SA_RESETHAND);
  sigaction(SIGUSR1, &action, nullptr);
  raise(SIGUSR1);
  struct sigaction after {};
  sigaction(SIGUSR1, nullptr, &after);
  claim("a one-shot handler is used up", calls == 1 && after.sa_handler == SIG_DFL);

  action.sa_flags = SA_RESTART;
  sigaddset(&action.sa_mask, SIGUSR2);
  sigaction(SIGUSR1, &action, nullptr);
  sigaction(SIGUSR1, nullptr, &after);
  claim("what was set is what is shown", after.sa_handler == plain_handler && (after.sa_flags & SA_RESTART) != 0 &&
                                             (after.sa_flags & SA_SIGINFO) == 0 && sigismember(&after.sa_mask, SIGUSR2) == 1);
  claim("signal() gives back the handler before", signal(SIGUSR1, SIG_IGN) == plain_handler &&
                                                      signal(SIGUSR1, plain_handler) == SIG_IGN);
  raise(SIGUSR1);
  claim("signal() sets a handler", calls == 2);

  set_handler(SIGUSR2, nesting_handler, SA_NODEFER);
  raise(SIGUSR2);
  claim("handlers nest", deepest == 5 && depth == 0);

  alternate = static_cast<char*>(malloc(65536));
  stack_t stack{};
  stack.ss_sp = alternate;
  stack.ss_size = 65536;
  sigaltstack(&stack, nullptr);
  set_handler(SIGUSR2, stack_handler, SA_ONSTACK);
  raise(SIGUSR2);
  claim("a handler runs on the alternate stack", on_alternate_stack);
  stack.ss_flags = SS_DISABLE;
  sigaltstack(&stack, nullptr);
  free(alternate);
}

// The kernel's struct, and what a program that makes its own system calls brings with it.
struct KernelAction {
  void (*handler)(int);
  unsigned long flags;
  void (*restorer)();
  unsigned long mask;
};

void test_raw_calls() {
  constexpr unsigned long kRestorer = 0x04000000;
  calls = 0;
  KernelAction action{plain_handler, kRestorer, own_restorer, 0};
  KernelAction before{};
  const long set = syscall(SYS_rt_sigaction, SIGUSR1, &action, nullptr, 8);
  raise(SIGUSR1);
  const long asked = syscall(SYS_rt_sigaction, SIGUSR1, nullptr, &before, 8);
  struct sigaction by_name {};
  sigaction(SIGUSR1, nullptr, &by_name);
  claim("a handler set by system call is called and shown", set == 0 && asked == 0 && calls == 1 &&
                                                                before.handler == plain_handler &&
                                                                before.flags == kRestorer &&
                                                                by_name.sa_handler == plain_handler);
  set_handler(SIGALRM, check_pattern);
  syscall(SYS_rt_sigaction, SIGALRM, nullptr, &before, 8);
  claim("one set by name is shown by system call", reinterpret_cast<void*>(before.handler) ==
                                                       reinterpret_cast<void*>(check_pattern));
  errno = 0;
  const long bad = syscall(SYS_rt_sigaction, SIGUSR1, reinterpret_cast<void*>(8), nullptr, 8);
  claim("a bad pointer is refused", bad == -1 && errno == EFAULT);
  signal(SIGALRM, SIG_IGN);
}

// Children that share our memory reset what they like.
void test_children() {
  signal(SIGUSR1, plain_handler);
  calls = 0;
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t all;
  sigfillset(&all);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  char name[] = "true";
  char* arguments[] = {name, nullptr};
  pid_t child = 0;
  int status = -1;
  if (posix_spawn(&child, "/bin/true", nullptr, &attributes, arguments, environ) == 0) waitpid(child, &status, 0);
  raise(SIGUSR1);
  claim("a spawned child resets its own handlers", status == 0 && calls == 1);
  child = vfork();
  if (child == 0) {
    signal(SIGUSR1, SIG_IGN);
    signal(SIGUSR1, SIG_DFL);
    _exit(3);
  }
  waitpid(child, &status, 0);
  raise(SIGUSR1);
  claim("so does a child of vfork", WEXITSTATUS(status) == 3 && calls == 2);
}

// --- contexts

ucontext_t main_context;
ucontext_t other_context;
volatile int rounds = 0;

void other_side() {
  for (;;) {
    rounds = rounds + 1;
    swapcontext(&other_context, &main_context);
  }
}

void switch_sides(int, siginfo_t*, void*) { swapcontext(&main_context, &other_context); }

void test_contexts(const volatile unsigned char* p, volatile long* counter) {
  char* const stack = static_cast<char*>(malloc(65536));
  getcontext(&other_context);
  other_context.uc_stack.ss_sp = stack;
  other_context.uc_stack.ss_size = 65536;
  other_context.uc_link = nullptr;
  sigaddset(&other_context.uc_sigmask, SIGALRM);
  makecontext(&other_context, other_side, 0);
  set_handler(SIGALRM, switch_sides);
  start_timer(150);
  long good = 0;
  while (rounds < 200) {
    *counter = 20000;
    good += run_pattern(p, counter) != 0;
  }
  start_timer(0);
  claim("handlers switch contexts and come back", good == 0);
  free(stack);
}

// --- cancellation

volatile bool is_running = false;
volatile int cleaned = 0;

void clean(void*) { cleaned = cleaned + 1; }

volatile long* cancel_counter = nullptr;
const volatile unsigned char* cancel_byte = nullptr;

__attribute__((noinline)) void spin() {
  for (;;) run_pattern(cancel_byte, cancel_counter);
}

void* run_until_cancelled(void* type) {
  int old;
  pthread_setcanceltype(int(reinterpret_cast<intptr_t>(type)), &old);
  pthread_cleanup_push(clean, nullptr);
  is_running = true;
  if (type == reinterpret_cast<void*>(intptr_t{PTHREAD_CANCEL_ASYNCHRONOUS})) {
    *cancel_counter = INT64_MAX;
    spin();
  } else {
    for (;;) pause();
  }
  pthread_cleanup_pop(1);
  return nullptr;
}

void test_cancellation(const volatile unsigned char* p, volatile long* counter) {
  cancel_byte = p;
  cancel_counter = counter;
  for (const int type : {PTHREAD_CANCEL_DEFERRED, PTHREAD_CANCEL_ASYNCHRONOUS}) {
    cleaned = 0;
    int cancelled = 0;
    for (int n = 0; n < 20; ++n) {
      is_running = false;
      pthread_t thread;
      pthread_create(&thread, nullptr, run_until_cancelled, reinterpret_cast<void*>(intptr_t{type}));
      while (!is_running) sched_yield();
      usleep(300);
      pthread_cancel(thread);
      void* result = nullptr;
      pthread_join(thread, &result);
      cancelled += result == PTHREAD_CANCELED;
    }
    claim(type == PTHREAD_CANCEL_DEFERRED ? "threads are cancelled where they wait" : "threads are cancelled where they run",
          cancelled == 20 && cleaned == 20);
  }
}

}  // namespace

int main() {
  close(2);  // what Penumbra has to say about null and wild pointers is not the subject
  void* warm[4];
  backtrace(warm, 4);  // loads libgcc outside of a handler
  // Five bytes of its last granule may be touched: the check's slow part runs each time. The first granule is whole.
  auto* const block = static_cast<unsigned char*>(malloc(13));
  memset(block, 0x5a, 13);
  auto* const counter = static_cast<long*>(malloc(sizeof(long)));
  test_every_register("in a check's fast part", block, counter);
  test_every_register("in a check's slow part", block + 9, counter);
  test_moved_pc(block, counter);
  test_moved_pc(block + 9, counter);
  test_jumps(block + 9, counter);
  test_traps();
  test_exceptions();
  test_dispositions();
  test_raw_calls();
  test_children();
  test_contexts(block, counter);
  test_contexts(block + 9, counter);
  signal(SIGALRM, SIG_IGN);
  test_cancellation(block, counter);
  test_cancellation(block + 9, counter);
  free(counter);
  free(block);
  printf("%ld claims failed\n", claims_failed);
  return claims_failed != 0;
}
