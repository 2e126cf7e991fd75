# Jumps that only reach 127 bytes jump over a jump.
# then: jrcxz 0x\w+ \| jrcxz moved
# then: jmp moved
# then: jmp moved
# then: loop 0x\w+ \| loop moved
# then: jmp moved
        .intel_syntax noprefix
        .text
        .globl f
        .type f, @function
f:      .cfi_startproc
        mov rcx, rsi
        jrcxz 2f
1:      mov eax, [rdi]
        add rdi, 4
        loop 1b
2:      ret
        .cfi_endproc
        .size f, .-f
