// Names through which compiled frames are left without returning, and the threads that run on their stacks: ours come
// first, unpoison what is abandoned (leaving.cc), and go on to the definition that the program would have had.
//
// In, out:   those of the interposed function; rdi, rsi, rdx, rcx, r8, r9 reach it untouched.
// Destroyed: rax, r10, r11 (the call convention's own scratch).
//
// All but vfork are tail jumps: the return address, the stack and every callee-saved register are the caller's, so the
// unwinder, longjmp's target and swapcontext's saved state see a direct call. While penumbra_abi_compiled is 0 the cost
// is one compare. The first call of a name looks its next definition up (penumbra_abi_resolve).

#include "instrument/abi/entry_macros_x86_64.h"

// clang-format off

// Keeps the argument registers around a call of ours; the stack is 16-byte aligned inside.
.macro SAVE_ARGUMENTS
  .irp register, rdi, rsi, rdx, rcx, r8, r9
  pushq %\register
  .cfi_adjust_cfa_offset 8
  .endr
  subq $8, %rsp
  .cfi_adjust_cfa_offset 8
.endm

.macro RESTORE_ARGUMENTS
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  .irp register, r9, r8, rcx, rdx, rsi, rdi
  popq %\register
  .cfi_adjust_cfa_offset -8
  .endr
.endm

// The return address and the caller's stack pointer, seen from inside SAVE_ARGUMENTS.
#define SAVED_BYTES 56

// Slots of their own: needed whether or not we are aside, and looked up late.
.macro LEAVING_SLOT name
  .pushsection .rodata.penumbra_abi_names, "a", @progbits
.Lname_\name:
  .asciz "\name"
  .popsection
  .pushsection penumbra_abi_leaving_slots, "aw", @progbits
  .balign 8
.Lslot_\name:
  .quad .Lname_\name
.Lnext_\name:
  .quad .Lresolve_\name
  .popsection
  .pushsection .text.unlikely.penumbra_abi, "ax", @progbits
.Lresolve_\name:
  .cfi_startproc
  endbr64
  SAVE_ARGUMENTS
  leaq .Lslot_\name(%rip), %rdi
  movq SAVED_BYTES(%rsp), %rsi
  call penumbra_abi_resolve
  RESTORE_ARGUMENTS
  jmp *%rax
  .cfi_endproc
  .popsection
.endm

// `handler` gets the arguments rdi and rsi, and in rdx the caller's stack pointer. `always`: also without compiled code.
.macro LEAVING name, handler, always=0
  LEAVING_SLOT \name
  .text
  PENUMBRA_EXPORTED \name
  .p2align 4
\name:
  .cfi_startproc
  endbr64
.if \always == 0
  cmpb $0, penumbra_abi_compiled(%rip)
  jne 1f
  jmp *.Lnext_\name(%rip)
1:
.endif
  SAVE_ARGUMENTS
  leaq SAVED_BYTES+8(%rsp), %rdx
  call \handler
  RESTORE_ARGUMENTS
  jmp *.Lnext_\name(%rip)
  .cfi_endproc
  .size \name, . - \name
.endm

LEAVING longjmp, penumbra_abi_on_longjmp
LEAVING _longjmp, penumbra_abi_on_longjmp
LEAVING siglongjmp, penumbra_abi_on_longjmp
LEAVING __longjmp_chk, penumbra_abi_on_longjmp

LEAVING __cxa_throw, penumbra_abi_on_throw
LEAVING __cxa_rethrow, penumbra_abi_on_throw
LEAVING _Unwind_RaiseException, penumbra_abi_on_throw
LEAVING _Unwind_Resume, penumbra_abi_on_throw
LEAVING _Unwind_Resume_or_Rethrow, penumbra_abi_on_throw
LEAVING _Unwind_ForcedUnwind, penumbra_abi_on_throw
LEAVING pthread_exit, penumbra_abi_on_throw

LEAVING swapcontext, penumbra_abi_on_swapcontext
LEAVING setcontext, penumbra_abi_on_setcontext

// What these load may be compiled code.
LEAVING dlopen, penumbra_abi_on_dlopen, 1
LEAVING dlmopen, penumbra_abi_on_dlmopen, 1

// pthread_create(thread, attributes, routine, argument): the new thread's routine and argument may be exchanged.
  LEAVING_SLOT pthread_create
  .text
  PENUMBRA_EXPORTED pthread_create
  .p2align 4
pthread_create:
  .cfi_startproc
  endbr64
  cmpb $0, penumbra_abi_compiled(%rip)
  jne 1f
  jmp *.Lnext_pthread_create(%rip)
1:
  SAVE_ARGUMENTS
  movq %rdx, %rdi
  movq %rcx, %rsi
  call penumbra_abi_on_pthread_create   // rax, rdx: the routine and argument to start with
  movq %rax, 32(%rsp)                   // where RESTORE_ARGUMENTS takes rdx from
  movq %rdx, 24(%rsp)                   // and rcx
  RESTORE_ARGUMENTS
  jmp *.Lnext_pthread_create(%rip)
  .cfi_endproc
  .size pthread_create, . - pthread_create

// vfork returns twice on one stack: the child's calls overwrite the return address, so it waits in a register that the
// kernel keeps (as in libc's own). Back in the parent, what the child left below the stack pointer is dead.
  LEAVING_SLOT vfork
  .text
  PENUMBRA_EXPORTED vfork
  .p2align 4
vfork:
  .cfi_startproc
  endbr64
  cmpb $0, penumbra_abi_compiled(%rip)
  jne 1f
  jmp *.Lnext_vfork(%rip)
1:
  popq %rdi
  .cfi_adjust_cfa_offset -8
  .cfi_register 16, 5                   // rip is in rdi
  movl $58, %eax                        // SYS_vfork
  syscall
  pushq %rdi
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset 16, 0
  testq %rax, %rax
  jne 2f
  ret
2:
  pushq %rax
  .cfi_adjust_cfa_offset 8
  leaq 16(%rsp), %rdi
  movq %rax, %rsi
  call penumbra_abi_after_vfork         // eax: what vfork returns; sets errno after a failure
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  ret
  .cfi_endproc
  .size vfork, . - vfork

  .section .note.GNU-stack, "", @progbits
