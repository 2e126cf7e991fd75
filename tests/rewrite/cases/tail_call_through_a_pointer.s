# A virtual function's tail call leads to a whole pointer: the function is patched at its short first instruction.
# then: 1007 jmp \[rax\+0x10\] \| jmp \[rax\+0x10\]
# then: patch 1000: jmp moved 1000
        .intel_syntax noprefix
        .text
        .globl f
        .type f, @function
f:      .cfi_startproc
        mov rax, [rdi]
        mov rsi, [rdi + 8]
        jmp [rax + 16]
        .cfi_endproc
        .size f, .-f
