# Protocol: see own_stack.h.
#
# penumbra_call_on_stack  in: rdi function, rsi its argument, rdx top of the other stack (16-byte aligned)
#                         out: eax 1. Callee-saved registers kept, the rest destroyed, as for any call.
# penumbra_abandon_stack  in: rdi the same top. Does not return; the call above returns 0 instead.
#
# The frame is found by rbp while the function runs, so unwinders can cross to the program's stack.

        .text
        .globl  penumbra_call_on_stack
        .hidden penumbra_call_on_stack
        .type   penumbra_call_on_stack, @function
penumbra_call_on_stack:
        .cfi_startproc
        pushq   %rbp
        .cfi_def_cfa_offset 16
        .cfi_offset %rbp, -16
        movq    %rsp, %rbp
        .cfi_def_cfa_register %rbp
        pushq   %rbx
        pushq   %r12
        pushq   %r13
        pushq   %r14
        pushq   %r15
        .cfi_offset %rbx, -24
        .cfi_offset %r12, -32
        .cfi_offset %r13, -40
        .cfi_offset %r14, -48
        .cfi_offset %r15, -56
        movq    %rsp, -16(%rdx)
        movq    %rdi, %rax
        movq    %rsi, %rdi
        leaq    -16(%rdx), %rsp
        call    *%rax
        movl    $1, %eax
        leaq    -40(%rbp), %rsp
        popq    %r15
        popq    %r14
        popq    %r13
        popq    %r12
        popq    %rbx
        popq    %rbp
        .cfi_def_cfa %rsp, 8
        ret
        .cfi_endproc
        .size   penumbra_call_on_stack, .-penumbra_call_on_stack

        .globl  penumbra_abandon_stack
        .hidden penumbra_abandon_stack
        .type   penumbra_abandon_stack, @function
penumbra_abandon_stack:
        movq    -16(%rdi), %rsp
        xorl    %eax, %eax
        popq    %r15
        popq    %r14
        popq    %r13
        popq    %r12
        popq    %rbx
        popq    %rbp
        ret
        .size   penumbra_abandon_stack, .-penumbra_abandon_stack

        .section .note.GNU-stack,"",@progbits
