# The same text of an operand names another place once its base has changed.
# then: 1000 mov eax, \[rdi\]
# then: cmp byte ptr
# then: 1006 add eax, \[rdi\]
# then: cmp byte ptr
# then: slow 2
        .intel_syntax noprefix
        .text
        .globl f
        .type f, @function
f:      .cfi_startproc
        mov eax, [rdi]
        add rdi, 8
        add eax, [rdi]
        ret
        .cfi_endproc
        .size f, .-f
