# machine_run(state, function): see machine.h. Not reentrant: it keeps its own place in static memory.

        .intel_syntax noprefix
        .data
        .globl  machine_vector_level
        .balign 8
machine_vector_level:
        .long   0
        .long   0
own_stack:
        .quad   0
state_at:
        .quad   0
function_at:
        .quad   0
scratch:
        .quad   0

        .text
        .globl  machine_run
        .type   machine_run, @function
machine_run:
        push    rbx
        push    rbp
        push    r12
        push    r13
        push    r14
        push    r15
        pushfq
        mov     own_stack[rip], rsp
        mov     state_at[rip], rdi
        mov     function_at[rip], rsi
        mov     rax, rdi
        fxrstor64 [rax + 2304]
        cmp     dword ptr machine_vector_level[rip], 1
        jb      1f
        je      2f
        .irp    i, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
        vmovdqu64 zmm\i, [rax + 256 + 64 * \i]
        .endr
        .irp    i, 0, 1, 2, 3, 4, 5, 6, 7
        kmovq   k\i, [rax + 136 + 8 * \i]
        .endr
        jmp     3f
2:      .irp    i, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
        vmovdqu ymm\i, [rax + 256 + 64 * \i]
        .endr
        jmp     3f
1:      .irp    i, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
        movups  xmm\i, [rax + 256 + 64 * \i]
        .endr
3:      mov     rsp, [rax + 32]
        mov     rcx, [rax + 8]
        mov     rdx, [rax + 16]
        mov     rbx, [rax + 24]
        mov     rbp, [rax + 40]
        mov     rsi, [rax + 48]
        mov     rdi, [rax + 56]
        mov     r8, [rax + 64]
        mov     r9, [rax + 72]
        mov     r10, [rax + 80]
        mov     r11, [rax + 88]
        mov     r12, [rax + 96]
        mov     r13, [rax + 104]
        mov     r14, [rax + 112]
        mov     r15, [rax + 120]
        push    [rax + 128]
        mov     rax, [rax]
        popfq
        call    function_at[rip]
        mov     scratch[rip], rax
        mov     rax, state_at[rip]
        mov     [rax + 8], rcx
        mov     [rax + 16], rdx
        mov     [rax + 24], rbx
        mov     [rax + 32], rsp
        mov     [rax + 40], rbp
        mov     [rax + 48], rsi
        mov     [rax + 56], rdi
        mov     [rax + 64], r8
        mov     [rax + 72], r9
        mov     [rax + 80], r10
        mov     [rax + 88], r11
        mov     [rax + 96], r12
        mov     [rax + 104], r13
        mov     [rax + 112], r14
        mov     [rax + 120], r15
        mov     rcx, scratch[rip]
        mov     [rax], rcx
        mov     rsp, own_stack[rip]
        fxsave64 [rax + 2304]
        cmp     dword ptr machine_vector_level[rip], 1
        jb      1f
        je      2f
        .irp    i, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
        vmovdqu64 [rax + 256 + 64 * \i], zmm\i
        .endr
        .irp    i, 0, 1, 2, 3, 4, 5, 6, 7
        kmovq   [rax + 136 + 8 * \i], k\i
        .endr
        vzeroupper
        jmp     3f
2:      .irp    i, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
        vmovdqu [rax + 256 + 64 * \i], ymm\i
        .endr
        vzeroupper
        jmp     3f
1:      .irp    i, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
        movups  [rax + 256 + 64 * \i], xmm\i
        .endr
3:      fninit
        push    0x1f80
        ldmxcsr [rsp]
        add     rsp, 8
        popfq
        pop     r15
        pop     r14
        pop     r13
        pop     r12
        pop     rbp
        pop     rbx
        ret
        .size   machine_run, .-machine_run
        .section .note.GNU-stack,"",@progbits
