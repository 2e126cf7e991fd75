# What is named relative to rip is the same place from the copy; globals are not checked, but what hangs on them is.
# then: lea rax, \[0x(?P<a>[0-9A-F]+)\] \| lea rax, \[0x0*(?P=a)\]
# then: lea (?P<s>\w+), \[rax\+rdi\*8\+0x07\]
# then: mov rax, \[rax\+rdi\*8\]
        .intel_syntax noprefix
        .text
        .globl f
        .type f, @function
f:      .cfi_startproc
        lea rax, table[rip]
        mov rax, [rax + rdi * 8]
        ret
        .cfi_endproc
        .size f, .-f
        .data
        .balign 16
table:  .quad 1, 2, 3
