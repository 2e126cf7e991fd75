// Names through which compiled frames are left without returning, and the threads that run on their stacks: ours come
// first, unpoison what is abandoned (leaving.cc), and go on to the definition that the program would have had.
//
// In, out:   those of the interposed function; rdi, rsi, rdx, rcx, r8, r9 reach it untouched.
// Destroyed: rax, r10, r11 (the call convention's own scratch).
//
// All but vfork are tail jumps: the return address, the stack and every callee-saved register are the caller's, so the
// unwinder, longjmp's target and swapcontext's saved state see a direct call. While penumbra_abi_compiled is 0 the cost
// is one compare. The first call of a name looks its next definition up (penumbra_abi_resolve). pthread_create always asks.

// The C++ runtime's names carry the version under which libstdc++ and libgcc_s define them, as versions that are no
// default: the dynamic loader finds ours for references to that version, but a linker never does. Else a program linked
// with -static-libstdc++ would leave its own __cxa_throw out, because we seem to have it. libc++, which has no versions,
// is not interposed.

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

// Slots of their own: needed whether or not we are aside, and looked up late. `resolve` gets the slot, the return
// address and, as it came, the fifth argument.
.macro LEAVING_SLOT name, resolve=penumbra_abi_resolve
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
  movq %r8, %rdx
  call \resolve
  RESTORE_ARGUMENTS
  jmp *%rax
  .cfi_endproc
  .popsection
.endm

// Begins the function that is exported as `name`, under `version` if there is one.
.macro BEGIN_LEAVING name, version
  .text
  .p2align 4
.ifb \version
  PENUMBRA_EXPORTED \name
\name:
.else
  PENUMBRA_EXPORTED penumbra_abi_\name
  .symver penumbra_abi_\name, \name@\version, remove
penumbra_abi_\name:
.endif
.endm

.macro END_LEAVING name, version
.ifb \version
  .size \name, . - \name
.else
  .size penumbra_abi_\name, . - penumbra_abi_\name
.endif
.endm

// `handler` gets the arguments rdi and rsi, and in rdx the caller's stack pointer. `always`: also without compiled code.
.macro LEAVING name, handler, always=0, version
  LEAVING_SLOT \name
  BEGIN_LEAVING \name, \version
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
  END_LEAVING \name, \version
.endm

LEAVING longjmp, penumbra_abi_on_longjmp
LEAVING _longjmp, penumbra_abi_on_longjmp
LEAVING siglongjmp, penumbra_abi_on_longjmp
LEAVING __longjmp_chk, penumbra_abi_on_longjmp

LEAVING __cxa_throw, penumbra_abi_on_throw, 0, CXXABI_1.3
LEAVING __cxa_rethrow, penumbra_abi_on_throw, 0, CXXABI_1.3
LEAVING _Unwind_RaiseException, penumbra_abi_on_throw, 0, GCC_3.0
LEAVING _Unwind_Resume, penumbra_abi_on_throw, 0, GCC_3.0
LEAVING _Unwind_Resume_or_Rethrow, penumbra_abi_on_throw, 0, GCC_3.3
LEAVING _Unwind_ForcedUnwind, penumbra_abi_on_throw, 0, GCC_3.0
LEAVING pthread_exit, penumbra_abi_on_throw

// personality(version, actions, class, exception, context), called by the unwinder for each frame with landing pads.
// libc cancels threads through the unwinder's own entry, past all of the above; but before a landing pad runs on top of
// the frames that a forced unwinding has left, its personality is asked.
#define FORCED_UNWINDING 8               // _UA_FORCE_UNWIND

.macro PERSONALITY name, version
  LEAVING_SLOT \name, penumbra_abi_resolve_personality
  BEGIN_LEAVING \name, \version
  .cfi_startproc
  endbr64
  cmpb $0, penumbra_abi_compiled(%rip)
  jne 1f
2:
  jmp *.Lnext_\name(%rip)
1:
  testl $FORCED_UNWINDING, %esi
  je 2b
  SAVE_ARGUMENTS
  leaq SAVED_BYTES+8(%rsp), %rdx
  call penumbra_abi_on_throw
  RESTORE_ARGUMENTS
  jmp *.Lnext_\name(%rip)
  .cfi_endproc
  END_LEAVING \name, \version
.endm

PERSONALITY __gxx_personality_v0, CXXABI_1.3
PERSONALITY __gcc_personality_v0, GCC_3.3.1

LEAVING swapcontext, penumbra_abi_on_swapcontext
LEAVING setcontext, penumbra_abi_on_setcontext

// What these load may be compiled code.
LEAVING dlopen, penumbra_abi_on_dlopen, 1
LEAVING dlmopen, penumbra_abi_on_dlmopen, 1

// pthread_create(thread, attributes, routine, argument): goes on in C++, with the next definition as fifth argument.
  LEAVING_SLOT pthread_create
  .text
  PENUMBRA_EXPORTED pthread_create
  .p2align 4
pthread_create:
  .cfi_startproc
  endbr64
  movq .Lnext_pthread_create(%rip), %r8
  jmp penumbra_abi_pthread_create
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
