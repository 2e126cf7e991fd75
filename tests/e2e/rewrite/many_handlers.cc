// More handlers than anybody should have: each is called, and sees code that was not moved where it interrupted it.
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <ucontext.h>

#include <utility>

static int calls;
static int strange;

template <int Number>
static void handler(int, siginfo_t*, void* context) {
  Dl_info place;
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  // Moved code belongs to no module.
  if (dladdr(reinterpret_cast<void*>(registers[REG_RIP]), &place) == 0) ++strange;
  calls += Number;
  registers[REG_RCX] = 1;
}

// Divides by nothing between two accesses, until a handler makes it one.
__attribute__((noinline)) static int divide(int* cell) {
  int quotient = *cell;
  int divisor = 0;
  __asm__ volatile("cltd\n\tidivl %%ecx" : "+a"(quotient), "+c"(divisor) : : "rdx", "cc", "memory");
  return *cell = quotient;
}

template <int... Number>
static void try_all(std::integer_sequence<int, Number...>) {
  int* const cell = new int(7);
  using Handler = void (*)(int, siginfo_t*, void*);
  for (const Handler one : {Handler(handler<Number>)...}) {
    struct sigaction wanted {};
    struct sigaction shown {};
    wanted.sa_sigaction = one;
    wanted.sa_flags = SA_SIGINFO;
    sigaction(SIGFPE, &wanted, nullptr);
    sigaction(SIGFPE, nullptr, &shown);
    if (shown.sa_sigaction != one) ++strange;
    if (divide(cell) != 7) ++strange;
  }
  delete cell;
}

int main() {
  try_all(std::make_integer_sequence<int, 700>());
  printf("%d, strange %d\n", calls, strange);
}
