# The flags of cmp are needed behind the store: they are kept in ax, overflow included, and put back.
# then: 1000 cmp
# then: lahf
# then: seto al
# then: cmp byte ptr \[\w+\+0x7FFF8000\], 0x00
# then: jnz slow 1
# then: add al, 0x7F
# then: sahf
# then: mov \[rdi\], rdx
# then: jl moved
        .intel_syntax noprefix
        .text
        .globl f
        .type f, @function
f:      .cfi_startproc
        cmp rsi, rdx
        jmp 1f
1:      mov [rdi], rdx
        jl 2f
        mov eax, 1
        ret
2:      xor eax, eax
        ret
        .cfi_endproc
        .size f, .-f
