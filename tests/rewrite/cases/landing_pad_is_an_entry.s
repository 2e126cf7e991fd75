# The unwinder comes back to the original's landing pad: its first instruction is patched.
# then: call 0x\w+ \| jmp \w+
# then: (?P<pad>\w+) mov rdi, rbx \|
# then: \| cmp byte ptr
# then: \| mov eax, \[rdi\]
# then: patch (?P=pad): jmp moved (?P=pad)
        .intel_syntax noprefix
        .text
        .globl f
        .type f, @function
f:      .cfi_startproc
        .cfi_personality 0x9b, personality
        .cfi_lsda 0x1b, lsda
        push rbx
        mov rbx, rdi
        mov eax, [rdi]
1:      call g@PLT
2:      xor ebx, ebx
        pop rbx
        ret
        .balign 16
3:      mov rdi, rbx
        mov eax, [rdi]
        pop rbx
        jmp h@PLT
        .cfi_endproc
        .size f, .-f
        .section .gcc_except_table, "a"
lsda:   .byte 0xff, 0xff, 1
        .uleb128 5f - 4f
4:      .uleb128 1b - f, 2b - 1b, 3b - f, 0
5:
        .data
personality: .quad 0
