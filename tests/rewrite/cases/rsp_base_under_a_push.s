# rsp with an index is checked; where the check has moved rsp, its address moves along (0x80 for the red zone, 8 for each of two pushes).
# then: lea rsp, \[rsp-0x80\]
# then: push (?P<s>\w+)
# then: push rax
# then: lea (?P=s), \[rsp\+rsi\*8\+0x97\]
# then: pop rax
# then: pop (?P=s)
# then: lea rsp, \[rsp\+0x80\]
# then: mov \[rsp\+rsi\*8\], rdi
# then: slow 1
# then: lea (?P=s), \[rsp\+rsi\*8\+0x90\]
        .intel_syntax noprefix
        .text
        .globl f
        .type f, @function
f:      .cfi_startproc
        mov [rsp + rsi * 8], rdi
        syscall
        ret
        .cfi_endproc
        .size f, .-f
