# A switch inside the function goes through a copy of its table; the original's targets are patched as well.
# then: movsxd rax, dword ptr \[rcx\+rax\*4\] \|
# then: \| movsxd rax, dword ptr \[rcx\+rax\*4[+-]0x\w+\]
# then: \| jmp rax
# then: patch \w+: jmp moved 1017
        .intel_syntax noprefix
        .text
        .globl f
        .type f, @function
f:      .cfi_startproc
        lea rcx, 9f[rip]
        mov eax, esi
        cmp eax, 2
        ja 3f
        movsxd rax, dword ptr [rcx + rax * 4]
        add rax, rcx
        jmp rax
1:      mov eax, [rdi]
        ret
2:      mov eax, [rdi + 8]
        ret
3:      mov eax, [rdi + 16]
        ret
        .cfi_endproc
        .size f, .-f
        .section .rodata
        .balign 4
9:      .long 1b - 9b, 2b - 9b, 3b - 9b
