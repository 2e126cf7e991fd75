# The entry of an indirect call keeps endbr64 in its copy; the patch stands on it, as a jump is as good where nothing tracks.
# then: 1000 endbr64 \| endbr64
# then: cmp byte ptr
# then: patch 1000: jmp moved 1000
        .intel_syntax noprefix
        .text
        .globl f
        .type f, @function
f:      .cfi_startproc
        endbr64
        mov eax, [rdi]
        ret
        .cfi_endproc
        .size f, .-f
