# The check stands above cmp, where the flags are dead, and not between cmp and its jump.
# then: 1000 cmp esi, edx \| lea
# then: cmp byte ptr \[\w+\+0x7FFF8000\], 0x00
# then: \n \| cmp esi, edx
# then: mov \[rdi\], rdx
# then: jl moved
# never: lahf
        .intel_syntax noprefix
        .text
        .globl f
        .type f, @function
f:      .cfi_startproc
        cmp esi, edx
        mov [rdi], rdx
        jl 2f
        mov eax, 1
2:      ret
        .cfi_endproc
        .size f, .-f
