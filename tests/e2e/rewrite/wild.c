/* Accesses of every shape to addresses that are not there: what the program's handler is told (signal, code, address, place,
   all registers, flags) is the same when the code was moved, although the check in front of the access looked at a shadow
   that is not there either (process ruling 3). */
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

/* One function for each shape: patterns in all registers but rdi (the address), rsi (2) and rcx (5), the zero flag and all
   registers live across the access, but for the flags where the access writes them (or calls): what nobody reads any more, a check may have
   used. Each is listed with its text in `shapes`. */
__asm__(
    ".macro shape name, instruction:vararg\n"
    "  .pushsection .rodata\n"
    "1: .asciz \"\\name: \\instruction\"\n"
    "  .popsection\n"
    "  .pushsection .data.rel.ro, \"aw\"\n"
    "  .quad shape_\\name, 1b, access_\\name, end_\\name\n"
    "  .popsection\n"
    "  .text\n"
    "  .type shape_\\name, @function\n"
    "shape_\\name:\n"
    "  .cfi_startproc\n"
    "  .irp r, rbx, rbp, r12, r13, r14, r15\n"
    "  push %\\r\n"
    "  .cfi_adjust_cfa_offset 8\n"
    "  .cfi_rel_offset \\r, 0\n"
    "  .endr\n"
    "  mov %rsp, shape_rsp(%rip)\n"
    "  movabs $0x0101010101010101, %rax\n"
    "  mov %rdi, %rbx\n"
    "  mov $5, %ecx\n"
    "  movabs $0x0404040404040404, %rdx\n"
    "  movabs $0x0505050505050505, %rbp\n"
    "  mov $2, %esi\n"
    "  movabs $0x0808080808080808, %r8\n"
    "  movabs $0x0909090909090909, %r9\n"
    "  movabs $0x0a0a0a0a0a0a0a0a, %r10\n"
    "  movabs $0x0b0b0b0b0b0b0b0b, %r11\n"
    "  movabs $0x0c0c0c0c0c0c0c0c, %r12\n"
    "  movabs $0x0d0d0d0d0d0d0d0d, %r13\n"
    "  movabs $0x0e0e0e0e0e0e0e0e, %r14\n"
    "  movabs $0x0f0f0f0f0f0f0f0f, %r15\n"
    "  cmp %rax, %rax\n"
    "access_\\name:\n"
    "  \\instruction\n"
    "end_\\name:\n"
    "  jne 2f\n"
    "  nop\n"
    "2: .irp r, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15\n"
    "  add %\\r, %rax\n"
    "  .endr\n"
    "  .irp r, r15, r14, r13, r12, rbp, rbx\n"
    "  pop %\\r\n"
    "  .cfi_adjust_cfa_offset -8\n"
    "  .cfi_restore \\r\n"
    "  .endr\n"
    "  ret\n"
    "  .cfi_endproc\n"
    "  .size shape_\\name, .-shape_\\name\n"
    ".endm\n"
    ".pushsection .data.rel.ro, \"aw\"\n"
    ".globl shapes\n"
    "shapes:\n"
    ".popsection\n"
    "shape byte, mov (%rdi), %al\n"
    "shape word, mov %ax, (%rdi)\n"
    "shape dword, cmovne 8(%rdi,%rsi,4), %eax\n"
    "shape flags_qword, add %rax, -8(%rdi)\n"
    "shape negative_index, mov (%rax,%rdi), %dl\n"
    "shape vector_load, movups (%rdi), %xmm0\n"
    "shape vector_store, movdqu %xmm0, 32(%rdi)\n"
    "shape merged, mov (%rdi), %al; mov 8(%rdi), %dl; mov 16(%rdi), %r8b\n"
    "shape flags_atomic, lock xadd %eax, (%rdi)\n"
    "shape exchange, xchg %rax, (%rdi)\n"
    "shape flags_compare_exchange, lock cmpxchg %ecx, (%rdi)\n"
    "shape extended, fldt (%rdi)\n"
    "shape state, fxsave (%rdi)\n"
    "shape flags_bit, bts %rcx, (%rdi)\n"
    "shape table, xlat\n"
    "shape fill, rep stosb\n"
    "shape move, rep movsb\n"
    "shape flags_scan, repne scasb\n"
    "shape flags_compare, repe cmpsb\n"
    "shape single_string, stosq\n"
    "shape push, pushq (%rdi)\n"
    "shape pop, popq (%rdi)\n"
    "shape flags_call, call *(%rdi)\n"
    "shape jump, jmp *(%rdi)\n"
    "shape immediate, movl $0x12345678, 4(%rdi)\n"
    "shape flags_test, testb $1, (%rdi)\n"
    ".pushsection .data.rel.ro, \"aw\"\n"
    ".quad 0\n"
    ".popsection\n");

struct shape {
  long (*function)(uintptr_t address);
  const char *text, *access, *end;
};
extern const struct shape shapes[] __attribute__((visibility("hidden")));
uintptr_t shape_rsp;

static sigjmp_buf out;

static void on_fault(int number, siginfo_t *info, void *state) {
  const greg_t *r = ((ucontext_t *)state)->uc_mcontext.gregs;
  static const int order[] = {REG_RAX, REG_RBX, REG_RCX, REG_RDX, REG_RSI, REG_RDI, REG_RBP, REG_R8,
                              REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
  uintptr_t pc = (uintptr_t)r[REG_RIP];
  long place = -1;
  int flags_matter = 1;
  for (const struct shape *s = shapes; s->function; s++) {
    if (pc >= (uintptr_t)s->access && pc < (uintptr_t)s->end) {
      place = (long)(pc - (uintptr_t)s->access);
      flags_matter = strncmp(s->text, "flags_", 6) != 0;
    }
  }
  printf(" signal %d code %d address %p at %+ld rsp %+ld zero %d\n ", number, info->si_code, info->si_addr, place,
         (long)((uintptr_t)r[REG_RSP] - shape_rsp), flags_matter && (r[REG_EFL] >> 6 & 1));
  for (unsigned n = 0; n < sizeof order / sizeof *order; n++) printf(" %lx", (unsigned long)r[order[n]]);
  printf("\n");
  siglongjmp(out, 1);
}

int main(void) {
  close(2); /* what Penumbra has to say about null and wild pointers is not the subject */
  struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
  sigaction(SIGSEGV, &action, NULL);
  sigaction(SIGBUS, &action, NULL);
  char *closed = mmap((void *)0x10000000, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  const uintptr_t addresses[] = {(uintptr_t)closed + 4096, 64, 0x4141414141414140, 0x00fffffffffffff0, 0xffff800000000000,
                                 0xfffffffffffffff0, 0x7fffffffffe0, 0x800000000000};
  for (volatile unsigned a = 0; a < sizeof addresses / sizeof *addresses; a++) {
    for (const struct shape *volatile s = shapes; s->function; s++) {
      printf("%s, rdi %lx\n", s->text, (unsigned long)addresses[a]);
      if (sigsetjmp(out, 1) == 0) printf(" no fault: %lx\n", (unsigned long)s->function(addresses[a]));
    }
  }
  return 0;
}
