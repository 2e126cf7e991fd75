# p[-1] and p[0] share a check that looks at both granules.
# then: lea (?P<s>\w+), \[rdi\+0x03\]
# then: cmp word ptr \[(?P=s)\+0x7FFF7FFF\], 0x00
        .intel_syntax noprefix
        .text
        .globl f
        .type f, @function
f:      .cfi_startproc
        movzx eax, byte ptr [rdi - 1]
        add eax, [rdi]
        ret
        .cfi_endproc
        .size f, .-f
