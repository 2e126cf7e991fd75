# The first return site has two bytes before the next call: it jumps shortly to a slot in bytes that nobody reaches any more.
# then: patch \w+: jmp moved 1000
# then: patch (?P<slot>\w+): jmp moved 100c
# then: patch 100c: jmp short (?P=slot)
        .intel_syntax noprefix
        .text
        .globl f
        .type f, @function
f:      .cfi_startproc
        push rbx
        mov rbx, rdi
        mov eax, [rbx + 8]
        add eax, 77
        call rsi
        mov [rbx], al
        call rsi
        pop rbx
        ret
        .cfi_endproc
        .size f, .-f
