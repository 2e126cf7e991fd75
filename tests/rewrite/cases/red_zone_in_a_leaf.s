# A leaf keeps values below rsp: a slow part steps over them before it calls, and back before it returns.
# then: mov \[rsp-0x08\], rsi
# then: slow 1
# then: lea rsp, \[rsp-0x80\]
# then: call the routine for
# then: lea rsp, \[rsp\+0x80\]
# then: jmp moved
        .intel_syntax noprefix
        .text
        .globl f
        .type f, @function
f:      .cfi_startproc
        mov [rsp - 8], rsi
        mov eax, [rdi]
        add rax, [rsp - 8]
        ret
        .cfi_endproc
        .size f, .-f
