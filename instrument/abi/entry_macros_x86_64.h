// What the assembly of this folder shares: the shadow's numbers, and how an entry point steps aside.
//
// Only preprocessor and assembler macros; checks.cc proves the numbers against shadow/encoding.h.
//
// Every exported name has a *slot*: {name, address of the next definition}. While penumbra_abi_aside is 0 an entry
// runs our code. Once stand_aside() has filled the slots and set it, each entry jumps to the definition that the
// program would have got without us (libasan's); a name nobody else defines returns 0. All of it is a tail jump:
// the stack and the argument registers are the caller's throughout, so an unwinder sees a direct call.
//
// zone: signal-safe
#pragma once

#define PENUMBRA_ABI_SHADOW_OFFSET 0x7fff8000
#define PENUMBRA_ABI_GRANULE_SHIFT 3
#define PENUMBRA_ABI_GRANULE_MASK 7

#ifdef __ASSEMBLER__
// clang-format off

// A slot for `name`, addressable as .Lnext_<name>.
.macro PENUMBRA_SLOT name, fallback=penumbra_abi_nothing
  .pushsection .rodata.penumbra_abi_names, "a", @progbits
.Lslot_name_\name:
  .asciz "\name"
  .popsection
  .pushsection penumbra_abi_slots, "aw", @progbits
  .balign 8
  .quad .Lslot_name_\name
.Lnext_\name:
  .quad \fallback
  .popsection
.endm

.macro PENUMBRA_EXPORTED name
  .globl \name
  .type \name, @function
.endm

// `name` runs the hidden function `impl` with the caller's stack and registers, or its slot when aside.
.macro PENUMBRA_ENTRY name, impl
  PENUMBRA_SLOT \name
  .text
  PENUMBRA_EXPORTED \name
  .p2align 4
\name:
  .cfi_startproc
  endbr64
  cmpb $0, penumbra_abi_aside(%rip)
  jne 1f
  jmp \impl
1:
  jmp *.Lnext_\name(%rip)
  .cfi_endproc
  .size \name, . - \name
.endm

// clang-format on
#endif
