// Code with known rules, never run: made-up stacks name it in their return addresses (one past the label).
    .text
// CFA = rsp + 16, rbp saved at CFA - 16
    .globl frame_from_rsp
    .type frame_from_rsp, @function
frame_from_rsp:
    .cfi_startproc
    .cfi_def_cfa_offset 16
    .cfi_offset rbp, -16
    nop
    nop
    .cfi_endproc
    .size frame_from_rsp, .-frame_from_rsp
// CFA = rbp + 16, rbp saved at CFA - 16
    .globl frame_from_rbp
    .type frame_from_rbp, @function
frame_from_rbp:
    .cfi_startproc
    .cfi_def_cfa rbp, 16
    .cfi_offset rbp, -16
    nop
    nop
    .cfi_endproc
    .size frame_from_rbp, .-frame_from_rbp
// No caller; two return addresses
    .globl outermost_frame
    .type outermost_frame, @function
outermost_frame:
    .cfi_startproc
    .cfi_undefined rip
    nop
    nop
    nop
    .cfi_endproc
    .size outermost_frame, .-outermost_frame
    .section .note.GNU-stack, "", @progbits
