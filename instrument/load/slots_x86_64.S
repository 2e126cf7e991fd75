# Entries of the slots, 16 bytes each, by scratch register and span (see slots.h, runtime/base/module_format.h).
#
# in:  the scratch register holds the address where the span begins; [rsp] is the return address in the area.
# out: everything as it was, but the arithmetic flags.
#
# All entries push scratch and span and go to one routine, which keeps the stack below 256 bytes.
#
# A signal may come at any instruction of all this. Its handler is to see the program as it was at the check, so call frame
# information is exact for all sixteen registers, not only for those that a callee keeps.

        .text
# Of no use to ordinary callers, which expect those to be lost.
        .macro  keep_all
        .irp    register, rax, rdx, rcx, rbx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15
        .cfi_same_value \register
        .endr
        .endm

        .macro  entry register
        .cfi_startproc
        keep_all
        .set    span, 1
        .rept   64
        .balign 16, 0xcc
        .cfi_def_cfa_offset 8
        push    \register
        .cfi_def_cfa_offset 16
        pushq   $span
        .cfi_def_cfa_offset 24
        jmp     check_span
        .set    span, span + 1
        .endr
        .cfi_endproc
        .endm

        .globl  penumbra_slot_entries
        .hidden penumbra_slot_entries
        .balign 16
penumbra_slot_entries:
        entry   %rax
        entry   %rcx
        entry   %rdx
        entry   %rbx
        entry   %rsp
        entry   %rbp
        entry   %rsi
        entry   %rdi
        entry   %r8
        entry   %r9
        entry   %r10
        entry   %r11
        entry   %r12
        entry   %r13
        entry   %r14
        entry   %r15

        .macro  save_one register
        push    %\register
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset \register, 0
        .endm

        .macro  restore_one register
        pop     %\register
        .cfi_adjust_cfa_offset -8
        .cfi_same_value \register
        .endm

# Begins a routine whose return address lies below two words. Registers by encoding, rax lowest; flags above them.
        .macro  save
        .cfi_startproc
        .cfi_def_cfa_offset 24
        keep_all
        pushfq
        .cfi_adjust_cfa_offset 8
        .irp    register, r15, r14, r13, r12, r11, r10, r9, r8, rdi, rsi, rbp
        save_one \register
        .endr
        push    %rsp
        .cfi_adjust_cfa_offset 8
        .irp    register, rbx, rdx, rcx, rax
        save_one \register
        .endr
        mov     %rsp, %rbx
        .cfi_def_cfa_register %rbx
        and     $-16, %rsp
        cld
        .endm

        .macro  restore
        mov     %rbx, %rsp
        .cfi_remember_state
        .cfi_def_cfa_register %rsp
        .irp    register, rax, rcx, rdx, rbx
        restore_one \register
        .endr
        lea     8(%rsp), %rsp
        .cfi_adjust_cfa_offset -8
        .irp    register, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15
        restore_one \register
        .endr
        popfq
        .cfi_adjust_cfa_offset -8
        lea     16(%rsp), %rsp
        .cfi_adjust_cfa_offset -16
        ret
        .cfi_restore_state
        .endm

        .balign 16
        .type   check_span, @function
check_span:
        save
        mov     144(%rbx), %rdi
        mov     136(%rbx), %rsi
        call    penumbra_span_is_fine
        test    %eax, %eax
        jz      1f
2:      restore
1:      mov     %rbx, %rdi
        call    penumbra_check_failed
        jmp     2b
        .cfi_endproc
        .size   check_span, .-check_span

# Special checks, and what stands before and behind a system call: the span says which (system_calls.h).
        .macro  special_entry name, which
        .globl  \name
        .hidden \name
        .type   \name, @function
        .balign 16
        .cfi_startproc
        keep_all
\name:
        pushq   $0
        .cfi_adjust_cfa_offset 8
        pushq   $\which
        .cfi_adjust_cfa_offset 8
        jmp     check_special
        .cfi_endproc
        .size   \name, .-\name
        .endm

        special_entry penumbra_special_entry, 0
        special_entry penumbra_system_call_entry, 1
        special_entry penumbra_system_return_entry, 2

        .type   check_special, @function
check_special:
        save
        mov     %rbx, %rdi
        call    penumbra_special_check
        restore
        .cfi_endproc
        .size   check_special, .-check_special

# penumbra_try_load(address): the byte there, or -1 where there is none. The handler of memory faults knows the place.
        .globl  penumbra_try_load, penumbra_try_load_fault, penumbra_try_load_failed
        .hidden penumbra_try_load, penumbra_try_load_fault, penumbra_try_load_failed
        .type   penumbra_try_load, @function
        .balign 16
penumbra_try_load:
        .cfi_startproc
penumbra_try_load_fault:
        movzbl  (%rdi), %eax
        ret
penumbra_try_load_failed:
        mov     $-1, %eax
        ret
        .cfi_endproc
        .size   penumbra_try_load, .-penumbra_try_load

# penumbra_store_zmm, _ymm, _xmm, _mm, _mask: entries of 16 bytes, one a register; each stores its register to [rdi].
        .macro  register_stores name, instruction, register, numbers:vararg
        .globl  \name
        .hidden \name
        .balign 16, 0xcc
\name:
        .irp    n, \numbers
        .balign 16, 0xcc
        \instruction %\register\n, (%rdi)
        ret
        .endr
        .endm

        register_stores penumbra_store_zmm, vmovdqu64, zmm, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
        register_stores penumbra_store_ymm, vmovdqu, ymm, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
        register_stores penumbra_store_xmm, movdqu, xmm, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
        register_stores penumbra_store_mm, movq, mm, 0, 1, 2, 3, 4, 5, 6, 7
        register_stores penumbra_store_mask, kmovq, k, 0, 1, 2, 3, 4, 5, 6, 7

# penumbra_with_vectors(function, argument, area): calls function(argument) with the vector state saved in `area`
# (64-byte aligned, large enough for xsave) and put back afterwards.
        .globl  penumbra_with_vectors
        .hidden penumbra_with_vectors
        .type   penumbra_with_vectors, @function
penumbra_with_vectors:
        .cfi_startproc
        push    %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset %rbx, -16
        mov     %rdx, %rbx
        mov     %rdi, %rcx
        mov     $-1, %eax
        mov     $-1, %edx
        xsave64 (%rbx)
        mov     %rsi, %rdi
        call    *%rcx
        mov     $-1, %eax
        mov     $-1, %edx
        xrstor64 (%rbx)
        pop     %rbx
        .cfi_def_cfa_offset 8
        ret
        .cfi_endproc
        .size   penumbra_with_vectors, .-penumbra_with_vectors

        .section .note.GNU-stack,"",@progbits
