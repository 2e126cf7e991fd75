# A function that calls keeps nothing below rsp: its slow parts do not step over it.
# then: slow 1
# then: call the routine for
# never: lea rsp, \[rsp-0x80\]
        .intel_syntax noprefix
        .text
        .globl f
        .type f, @function
f:      .cfi_startproc
        push rbx
        mov rbx, rdi
        call g
        mov eax, [rbx]
        pop rbx
        ret
        .cfi_endproc
        .size f, .-f
        .type g, @function
g:      .cfi_startproc
        ret
        .cfi_endproc
        .size g, .-g
