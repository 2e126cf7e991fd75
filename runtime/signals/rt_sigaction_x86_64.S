# What libc's rt_sigaction instruction is replaced by: a call of this, in place of `mov $13, %eax; syscall`.
#
# in:         rdi, rsi, rdx, r10 as for the system call
# out:        rax, its result
# destroyed:  rcx, r11, as by the system call; and vector registers, of which __libc_sigaction keeps none across it

        .text
        .globl  penumbra_rt_sigaction_site
        .hidden penumbra_rt_sigaction_site
        .type   penumbra_rt_sigaction_site, @function
        .balign 16
penumbra_rt_sigaction_site:
        .cfi_startproc
        .irp    register, rdi, rsi, rdx, r8, r9, r10, rbp
        push    %\register
        .cfi_adjust_cfa_offset 8
        .endr
        mov     %rsp, %rbp
        .cfi_def_cfa_register %rbp
        .cfi_offset %rbp, -64
        and     $-16, %rsp
        mov     %r10, %rcx
        call    penumbra_on_rt_sigaction
        mov     %rbp, %rsp
        .cfi_def_cfa_register %rsp
        .irp    register, rbp, r10, r9, r8, rdx, rsi, rdi
        pop     %\register
        .cfi_adjust_cfa_offset -8
        .endr
        .cfi_same_value %rbp
        ret
        .cfi_endproc
        .size   penumbra_rt_sigaction_site, .-penumbra_rt_sigaction_site

        .section .note.GNU-stack,"",@progbits
