# long penumbra_clone_thread(unsigned long flags, void* top, void (*function)(void*), void* argument, int* tid, void* fs)
#
# in:  rdi flags of clone(2), rsi top of the thread's stack (16-byte aligned), rdx function, rcx its argument,
#      r8 the word that clone writes the id to, and that the kernel clears at the end, r9 the thread's fs base
# out: rax the thread's id, or a negated errno. The thread calls function(argument), then ends, it alone.
# r12 and r13 carry function and argument across the system call, which destroys rcx and r11.

        .text
        .globl  penumbra_clone_thread
        .hidden penumbra_clone_thread
        .type   penumbra_clone_thread, @function
penumbra_clone_thread:
        .cfi_startproc
        pushq   %r12
        .cfi_def_cfa_offset 16
        .cfi_offset %r12, -16
        pushq   %r13
        .cfi_def_cfa_offset 24
        .cfi_offset %r13, -24
        movq    %rdx, %r12
        movq    %rcx, %r13
        movq    %r8, %rdx                       # CLONE_PARENT_SETTID
        movq    %r8, %r10                       # CLONE_CHILD_CLEARTID
        movq    %r9, %r8                        # CLONE_SETTLS
        movl    $56, %eax                       # SYS_clone
        syscall
        testq   %rax, %rax
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
        xorl    %edi, %edi
        movl    $60, %eax                       # SYS_exit: only this thread
        syscall
        hlt
        .size   penumbra_clone_thread, .-penumbra_clone_thread

        .section .note.GNU-stack,"",@progbits
