// The outline checks, __asan_{load,store}{1,2,4,8,16,N} with and without _noabort: the path every load takes.
//
// In:        rdi = address (N: rsi = bytes). The System V call convention, as the compilers assume.
// Destroyed: rax, rcx, rdx, flags. Nothing else on the fast path, and no stack beyond the return address.
// Out:       returns to the caller, or jumps with the caller's stack intact to penumbra_abi_check (checks.cc) with
//            rsi = bytes, edx = kind (bit 0 write, bit 1 abort), so that its caller is the checked code.
//
// An access of up to 8 bytes lies in at most two granules: that of its first byte and that of its last. Both shadow
// bytes zero is the common answer and costs one branch; else the first of two must be zero and the last must allow
// the last byte. Exact for every alignment: unlike the compilers' inline checks, which look at the first granule only
// (facts: KASAN's _2_4_8 rule).
//
// penumbra_abi_checked_end is 0 until the shadow stands, and while we are aside, so one unsigned compare sends away
// calls that come too early, processes without a shadow, and addresses that have none (kernel, non-canonical).
//
// Shadow that reads 0 says all but inside the region span, where memory that was never allocated, or purged, reads 0 as
// well (memory ruling 1): a second compare sends those accesses to penumbra_abi_check_unit, which asks the unit map.

#include "instrument/abi/entry_macros_x86_64.h"

// clang-format off

// The way out of a fast path: forward when aside, else the exact check. One per entry, away from the hot code.
.macro SLOW_PATH name, bytes, kind
  .pushsection .text.unlikely.penumbra_abi, "ax", @progbits
.Lslow_\name:
  .cfi_startproc
  cmpb $0, penumbra_abi_aside(%rip)
  jne 1f
.ifnc \bytes,rsi
  movl $\bytes, %esi
.endif
  movl $\kind, %edx
  jmp penumbra_abi_check
1:
  jmp *.Lnext_\name(%rip)
  .cfi_endproc
  .popsection
.endm

// The way out of a fast path that met no bad byte: back, or to the unit map if the address lies in the span, or up to
// 63 bytes before it. Destroys rax.
.macro PASS name
  movq %rdi, %rax
  subq penumbra_abi_span_low(%rip), %rax
  cmpq penumbra_abi_span_reach(%rip), %rax
  jb .Lunit_\name
  ret
.endm

.macro UNIT_PATH name, bytes, kind
  .pushsection .text.unlikely.penumbra_abi, "ax", @progbits
.Lunit_\name:
  .cfi_startproc
.ifnc \bytes,rsi
  movl $\bytes, %esi
.endif
  movl $\kind, %edx
  jmp penumbra_abi_check_unit
  .cfi_endproc
  .popsection
.endm

.macro BEGIN_CHECK name
  PENUMBRA_SLOT \name
  PENUMBRA_EXPORTED \name
  .p2align 5
\name:
  .cfi_startproc
  endbr64
  cmpq penumbra_abi_checked_end(%rip), %rdi
  jae .Lslow_\name
.endm

.macro END_CHECK name
  .cfi_endproc
  .size \name, . - \name
.endm

.macro CHECK_1 name, kind
  BEGIN_CHECK \name
  movq %rdi, %rax
  shrq $PENUMBRA_ABI_GRANULE_SHIFT, %rax
  movsbl PENUMBRA_ABI_SHADOW_OFFSET(%rax), %eax
  testl %eax, %eax
  jne 1f
  PASS \name
1:
  movl %edi, %ecx
  andl $PENUMBRA_ABI_GRANULE_MASK, %ecx
  cmpl %eax, %ecx
  jge .Lslow_\name
  ret                           // a byte that is not 0 says that its memory is there
  END_CHECK \name
  SLOW_PATH \name, 1, \kind
  UNIT_PATH \name, 1, \kind
.endm

// 2, 4 and 8 bytes.
.macro CHECK_WORD name, bytes, kind
  BEGIN_CHECK \name
  leaq (\bytes - 1)(%rdi), %rdx
  movq %rdi, %rax
  shrq $PENUMBRA_ABI_GRANULE_SHIFT, %rdx
  shrq $PENUMBRA_ABI_GRANULE_SHIFT, %rax
  movzbl PENUMBRA_ABI_SHADOW_OFFSET(%rdx), %ecx
  orb PENUMBRA_ABI_SHADOW_OFFSET(%rax), %cl
  jne 1f
  PASS \name
1:
  cmpq %rax, %rdx
  je 2f
  cmpb $0, PENUMBRA_ABI_SHADOW_OFFSET(%rax)
  jne .Lslow_\name
2:
  movsbl PENUMBRA_ABI_SHADOW_OFFSET(%rdx), %ecx
  leal (\bytes - 1)(%rdi), %eax
  andl $PENUMBRA_ABI_GRANULE_MASK, %eax
  cmpl %ecx, %eax
  jge .Lslow_\name
  PASS \name
  END_CHECK \name
  SLOW_PATH \name, \bytes, \kind
  UNIT_PATH \name, \bytes, \kind
.endm

// 16 bytes: two granules when aligned, three when not; a partial last one is left to the slow path.
.macro CHECK_16 name, kind
  BEGIN_CHECK \name
  leaq 15(%rdi), %rdx
  movq %rdi, %rax
  shrq $PENUMBRA_ABI_GRANULE_SHIFT, %rdx
  shrq $PENUMBRA_ABI_GRANULE_SHIFT, %rax
  cmpw $0, PENUMBRA_ABI_SHADOW_OFFSET(%rax)
  jne .Lslow_\name
  cmpb $0, PENUMBRA_ABI_SHADOW_OFFSET(%rdx)
  jne .Lslow_\name
  PASS \name
  END_CHECK \name
  SLOW_PATH \name, 16, \kind
  UNIT_PATH \name, 16, \kind
.endm

// Any size: the first, the last and every granule between, where they are few; more goes to the vectorised search.
.macro CHECK_N name, kind
  BEGIN_CHECK \name
  leaq -1(%rsi), %rdx
  cmpq $63, %rdx                // 0 bytes wraps and goes the slow way too
  ja .Lslow_\name
  addq %rdi, %rdx
  movq %rdi, %rax
  shrq $PENUMBRA_ABI_GRANULE_SHIFT, %rdx
  shrq $PENUMBRA_ABI_GRANULE_SHIFT, %rax
1:
  cmpb $0, PENUMBRA_ABI_SHADOW_OFFSET(%rax)
  jne .Lslow_\name
  incq %rax
  cmpq %rdx, %rax
  jbe 1b
  PASS \name
  END_CHECK \name
  SLOW_PATH \name, rsi, \kind
  UNIT_PATH \name, rsi, \kind
.endm

.macro CHECKS suffix, abort
  CHECK_1    __asan_load1\suffix, 0+2*\abort
  CHECK_1    __asan_store1\suffix, 1+2*\abort
  CHECK_WORD __asan_load2\suffix, 2, 0+2*\abort
  CHECK_WORD __asan_store2\suffix, 2, 1+2*\abort
  CHECK_WORD __asan_load4\suffix, 4, 0+2*\abort
  CHECK_WORD __asan_store4\suffix, 4, 1+2*\abort
  CHECK_WORD __asan_load8\suffix, 8, 0+2*\abort
  CHECK_WORD __asan_store8\suffix, 8, 1+2*\abort
  CHECK_16   __asan_load16\suffix, 0+2*\abort
  CHECK_16   __asan_store16\suffix, 1+2*\abort
  CHECK_N    __asan_loadN\suffix, 0+2*\abort
  CHECK_N    __asan_storeN\suffix, 1+2*\abort
.endm

// One run of code without a stack frame, so that a fault of its shadow loads (a pointer into the inaccessible image of
// the shadow) can be resumed in the caller: skip_faulting_check() in checks.cc.
  .text
  .globl penumbra_abi_checks_begin
  .hidden penumbra_abi_checks_begin
penumbra_abi_checks_begin:
CHECKS _noabort, 0
CHECKS , 1
  .globl penumbra_abi_checks_end
  .hidden penumbra_abi_checks_end
penumbra_abi_checks_end:

// What an inline check calls once it has found a bad byte: no fast path, the caller knows already.
.macro REPORT name, bytes, kind
  PENUMBRA_SLOT \name
  PENUMBRA_EXPORTED \name
  .text
  .p2align 4
\name:
  .cfi_startproc
  endbr64
  cmpb $0, penumbra_abi_aside(%rip)
  jne 1f
.ifnc \bytes,rsi
  movl $\bytes, %esi
.endif
  movl $\kind, %edx
  jmp penumbra_abi_report
1:
  jmp *.Lnext_\name(%rip)
  END_CHECK \name
.endm

.macro REPORTS suffix, abort
  REPORT __asan_report_load1\suffix, 1, 0+2*\abort
  REPORT __asan_report_store1\suffix, 1, 1+2*\abort
  REPORT __asan_report_load2\suffix, 2, 0+2*\abort
  REPORT __asan_report_store2\suffix, 2, 1+2*\abort
  REPORT __asan_report_load4\suffix, 4, 0+2*\abort
  REPORT __asan_report_store4\suffix, 4, 1+2*\abort
  REPORT __asan_report_load8\suffix, 8, 0+2*\abort
  REPORT __asan_report_store8\suffix, 8, 1+2*\abort
  REPORT __asan_report_load16\suffix, 16, 0+2*\abort
  REPORT __asan_report_store16\suffix, 16, 1+2*\abort
  REPORT __asan_report_load_n\suffix, rsi, 0+2*\abort
  REPORT __asan_report_store_n\suffix, rsi, 1+2*\abort
.endm

REPORTS _noabort, 0
REPORTS , 1

// A name that only we define, called while aside.
  .text
  .globl penumbra_abi_nothing
  .hidden penumbra_abi_nothing
  .type penumbra_abi_nothing, @function
penumbra_abi_nothing:
  .cfi_startproc
  endbr64
  xorl %eax, %eax
  ret
  .cfi_endproc
  .size penumbra_abi_nothing, . - penumbra_abi_nothing

  .section .note.GNU-stack, "", @progbits
