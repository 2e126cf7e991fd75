# Where a jump's target is a sum that nothing bounds, no patch covers more than one instruction: the entry's has three bytes.
# then: jmp rax
# never: patch 1000
        .intel_syntax noprefix
        .text
        .globl f
        .type f, @function
f:      .cfi_startproc
        mov rax, [rdi]
        add rax, rsi
        jmp rax
        mov eax, 1
        ret
        .cfi_endproc
        .size f, .-f
