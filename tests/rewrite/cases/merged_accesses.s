# Fields of one object share a check of the range they span, which stands before the first.
# then: lea (?P<s>\w+), \[rdi\+0x0B\]
# then: cmp word ptr \[(?P=s)\+0x7FFF7FFF\], 0x00
# then: mov eax, \[rdi\+0x08\]
# then: 1003 add eax, \[rdi\] \| add eax, \[rdi\]
# then: slow 1
# then: 1000 read of 4 bytes
# then: 1003 read of 4 bytes
        .intel_syntax noprefix
        .text
        .globl f
        .type f, @function
f:      .cfi_startproc
        mov eax, [rdi + 8]
        add eax, [rdi]
        ret
        .cfi_endproc
        .size f, .-f
