# A jump of two bytes reaches its moved target, whatever was put between.
# then: jz 0x\w+ \| jz moved
# then: jmp 0x\w+ \| jmp moved
# never: jz 0x\w+ \| jz 10
        .intel_syntax noprefix
        .text
        .globl f
        .type f, @function
f:      .cfi_startproc
        test rdi, rdi
        jz 1f
        mov eax, [rdi]
        jmp 2f
1:      mov eax, [rsi]
2:      ret
        .cfi_endproc
        .size f, .-f
