# Entries of the slots, 16 bytes each, by scratch register and span (see slots.h, runtime/base/module_format.h).
#
# in:  the scratch register holds the address where the span begins; [rsp] is the return address in the area.
# out: everything as it was, but the arithmetic flags.
#
# All entries push scratch and span and go to one routine, which keeps the stack below 256 bytes.

        .text
        .macro  entry register
        .set    span, 1
        .rept   64
        .balign 16, 0xcc
        push    \register
        pushq   $span
        jmp     check_span
        .set    span, span + 1
        .endr
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

# Registers by encoding, rax lowest; flags above them.
        .macro  save
        pushfq
        push    %r15
        push    %r14
        push    %r13
        push    %r12
        push    %r11
        push    %r10
        push    %r9
        push    %r8
        push    %rdi
        push    %rsi
        push    %rbp
        push    %rsp
        push    %rbx
        push    %rdx
        push    %rcx
        push    %rax
        mov     %rsp, %rbx
        and     $-16, %rsp
        cld
        .endm

        .macro  restore
        mov     %rbx, %rsp
        pop     %rax
        pop     %rcx
        pop     %rdx
        pop     %rbx
        lea     8(%rsp), %rsp
        pop     %rbp
        pop     %rsi
        pop     %rdi
        pop     %r8
        pop     %r9
        pop     %r10
        pop     %r11
        pop     %r12
        pop     %r13
        pop     %r14
        pop     %r15
        popfq
        lea     16(%rsp), %rsp
        ret
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
        .size   check_span, .-check_span

        .globl  penumbra_special_entry
        .hidden penumbra_special_entry
        .type   penumbra_special_entry, @function
        .balign 16
penumbra_special_entry:
        pushq   $0
        pushq   $0
        save
        mov     %rbx, %rdi
        call    penumbra_special_check
        restore
        .size   penumbra_special_entry, .-penumbra_special_entry

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
