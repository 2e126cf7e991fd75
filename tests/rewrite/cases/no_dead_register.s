# Every register is needed behind the store (a system call may look at each): one is spilled, past the red zone of a leaf.
# then: lea rsp, \[rsp-0x80\]
# then: push (?P<s>\w+)
# then: lea (?P=s), \[rdi\+0x03\]
# then: shr (?P=s), 0x03
# then: cmp byte ptr \[(?P=s)\+0x7FFF8000\], 0x00
# then: pop (?P=s)
# then: lea rsp, \[rsp\+0x80\]
# then: mov \[rdi\], esi
        .intel_syntax noprefix
        .text
        .globl f
        .type f, @function
f:      .cfi_startproc
        mov [rdi], esi
        syscall
        ret
        .cfi_endproc
        .size f, .-f
