# int penumbra_clone(unsigned long flags, void* top, int (*function)(void*), void* argument)
#
# in:  rdi flags of clone(2), rsi top of the child's stack (16-byte aligned), rdx function, rcx its argument
# out: eax the child's pid, or a negated errno. The child calls function(argument) and ends with what that returns.
# The child never returns through the caller's frame, so both may share memory. r12 and r13 carry function and argument
# across the system call, which destroys rcx and r11; clone's own third and later arguments are 0.

        .text
        .globl  penumbra_clone
        .hidden penumbra_clone
        .type   penumbra_clone, @function
penumbra_clone:
        .cfi_startproc
        pushq   %r12
        .cfi_def_cfa_offset 16
        .cfi_offset %r12, -16
        pushq   %r13
        .cfi_def_cfa_offset 24
        .cfi_offset %r13, -24
        movq    %rdx, %r12
        movq    %rcx, %r13
        xorl    %edx, %edx
        xorl    %r10d, %r10d
        xorl    %r8d, %r8d
        movl    $56, %eax                       # SYS_clone
        syscall
        testl   %eax, %eax
        jz      1f
        popq    %r13
        .cfi_def_cfa_offset 16
        popq    %r12
        .cfi_def_cfa_offset 8
        ret
        .cfi_endproc
1:      xorl    %ebp, %ebp
        movq    %r13, %rdi
        call    *%r12
        movl    %eax, %edi
        movl    $231, %eax                      # SYS_exit_group: the child is a process of its own
        syscall
        hlt
        .size   penumbra_clone, .-penumbra_clone

        .section .note.GNU-stack,"",@progbits
