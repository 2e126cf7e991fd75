# Both sides of rep movs are asked about before it, with the flags kept where they are needed behind it.
# then: std
# then: rep movsq \|
# then: pushfq
# then: call the routine of special checks
# then: popfq
# then: call the routine of special checks
# then: rep movsq
# then: setb al
        .intel_syntax noprefix
        .text
        .globl f
        .type f, @function
f:      .cfi_startproc
        mov rcx, rdx
        cmp rdi, rsi
        std
        rep movsq
        cld
        setb al
        ret
        .cfi_endproc
        .size f, .-f
