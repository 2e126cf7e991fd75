# A call is executed where it stands, so that its return address is the original's; the return site leads back.
# then: 1007 call rsi \| jmp 1007\n
# then: mov eax, \[rbx\]
# then: patch 1000: jmp moved 1000
# then: patch 1009: jmp moved 1009
# never: \| call rsi
        .intel_syntax noprefix
        .text
        .globl f
        .type f, @function
f:      .cfi_startproc
        push rbx
        mov rbx, rdi
        mov eax, [rbx + 8]
        call rsi
        mov eax, [rbx]
        add eax, 5
        pop rbx
        ret
        .cfi_endproc
        .size f, .-f
