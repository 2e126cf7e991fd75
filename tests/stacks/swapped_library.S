// One function, in two libraries that differ in FRAME only: the size of its frame. Return addresses are the same in
// both, the rules for them are not.
//
//   void call_through(void (*callee)(void))
    .text
    .globl call_through
    .type call_through, @function
    .p2align 4
call_through:
    .cfi_startproc
    sub $FRAME, %rsp
    .cfi_adjust_cfa_offset FRAME
    call *%rdi
    add $FRAME, %rsp
    .cfi_adjust_cfa_offset -FRAME
    ret
    .cfi_endproc
    .size call_through, .-call_through
    .section .note.GNU-stack, "", @progbits
