// Every other name that gcc 12 and clang 14..19 emit a reference to under -fsanitize=kernel-address, one line each.
//
// In, out, destroyed: the System V call convention, for the hidden C++ function behind the name; see
// entry_macros_x86_64.h for what happens while we are aside.

#include "instrument/abi/entry_macros_x86_64.h"

// clang-format off

// Globals (globals.cc). Checking the order of initialisation is ASan's option, off there by default; KASAN has none.
PENUMBRA_ENTRY __asan_register_globals, penumbra_abi_register_globals
PENUMBRA_ENTRY __asan_unregister_globals, penumbra_abi_unregister_globals
PENUMBRA_ENTRY __asan_before_dynamic_init, penumbra_abi_nothing
PENUMBRA_ENTRY __asan_after_dynamic_init, penumbra_abi_nothing

// Stack (stack.cc).
PENUMBRA_ENTRY __asan_handle_no_return, penumbra_abi_handle_no_return
PENUMBRA_ENTRY __asan_alloca_poison, penumbra_abi_alloca_poison
PENUMBRA_ENTRY __asan_allocas_unpoison, penumbra_abi_allocas_unpoison
PENUMBRA_ENTRY __asan_poison_stack_memory, penumbra_abi_poison_stack_memory
PENUMBRA_ENTRY __asan_unpoison_stack_memory, penumbra_abi_unpoison_stack_memory

.macro SET_SHADOW value
  PENUMBRA_SLOT __asan_set_shadow_\value
  .text
  PENUMBRA_EXPORTED __asan_set_shadow_\value
  .p2align 4
__asan_set_shadow_\value:
  .cfi_startproc
  endbr64
  cmpb $0, penumbra_abi_aside(%rip)
  jne 1f
  movl $0x\value, %edx
  jmp penumbra_abi_set_shadow
1:
  jmp *.Lnext___asan_set_shadow_\value(%rip)
  .cfi_endproc
  .size __asan_set_shadow_\value, . - __asan_set_shadow_\value
.endm

.irp value, 00, 01, 02, 03, 04, 05, 06, 07, f1, f2, f3, f5, f8
  SET_SHADOW \value
.endr

// Frames for use-after-return: 0 means "none to be had", and the function then uses its real stack, as every caller
// must be able to (asan's ABI; size classes 0..10, 64 bytes to 64 KiB).
.irp class, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
  PENUMBRA_ENTRY __asan_stack_malloc_\class, penumbra_abi_nothing
  PENUMBRA_ENTRY __asan_stack_malloc_always_\class, penumbra_abi_nothing
  PENUMBRA_ENTRY __asan_stack_free_\class, penumbra_abi_nothing
.endr

// What the compilers call in place of memcpy and its relatives (memory_calls.cc).
PENUMBRA_ENTRY __asan_memcpy, penumbra_abi_memcpy
PENUMBRA_ENTRY __asan_memmove, penumbra_abi_memmove
PENUMBRA_ENTRY __asan_memset, penumbra_abi_memset

// -fsanitize=pointer-compare and pointer-subtract: as in ASan's default, pairs are not judged.
PENUMBRA_ENTRY __sanitizer_ptr_cmp, penumbra_abi_nothing
PENUMBRA_ENTRY __sanitizer_ptr_sub, penumbra_abi_nothing

// sanitizer/asan_interface.h: manual poisoning (user_poison.cc).
PENUMBRA_ENTRY __asan_poison_memory_region, penumbra_abi_poison_region
PENUMBRA_ENTRY __asan_unpoison_memory_region, penumbra_abi_unpoison_region
PENUMBRA_ENTRY __asan_address_is_poisoned, penumbra_abi_address_is_poisoned
PENUMBRA_ENTRY __asan_region_is_poisoned, penumbra_abi_region_is_poisoned

// sanitizer/common_interface_defs.h: containers (containers.cc).
PENUMBRA_ENTRY __sanitizer_annotate_contiguous_container, penumbra_abi_annotate_contiguous
PENUMBRA_ENTRY __sanitizer_annotate_double_ended_contiguous_container, penumbra_abi_annotate_double_ended
PENUMBRA_ENTRY __sanitizer_verify_contiguous_container, penumbra_abi_verify_contiguous
PENUMBRA_ENTRY __sanitizer_verify_double_ended_contiguous_container, penumbra_abi_verify_double_ended
PENUMBRA_ENTRY __sanitizer_contiguous_container_find_bad_address, penumbra_abi_contiguous_bad_address
PENUMBRA_ENTRY __sanitizer_double_ended_contiguous_container_find_bad_address, penumbra_abi_double_ended_bad_address

// The rest (interface.cc).
PENUMBRA_ENTRY __asan_report_present, penumbra_abi_report_present
PENUMBRA_ENTRY __asan_get_report_pc, penumbra_abi_report_pc
PENUMBRA_ENTRY __asan_get_report_bp, penumbra_abi_report_bp
PENUMBRA_ENTRY __asan_get_report_sp, penumbra_abi_report_sp
PENUMBRA_ENTRY __asan_get_report_address, penumbra_abi_report_address
PENUMBRA_ENTRY __asan_get_report_access_type, penumbra_abi_report_access_type
PENUMBRA_ENTRY __asan_get_report_access_size, penumbra_abi_report_access_size
PENUMBRA_ENTRY __asan_get_report_description, penumbra_abi_report_description
PENUMBRA_ENTRY __asan_report_error, penumbra_abi_report_error
PENUMBRA_ENTRY __asan_set_error_report_callback, penumbra_abi_set_report_callback
PENUMBRA_ENTRY __asan_set_death_callback, penumbra_abi_set_death_callback
PENUMBRA_ENTRY __sanitizer_set_death_callback, penumbra_abi_set_death_callback
PENUMBRA_ENTRY __sanitizer_acquire_crash_state, penumbra_abi_acquire_crash_state
PENUMBRA_ENTRY __sanitizer_print_stack_trace, penumbra_abi_print_stack_trace
PENUMBRA_ENTRY __asan_describe_address, penumbra_abi_describe_address
PENUMBRA_ENTRY __asan_locate_address, penumbra_abi_locate_address
PENUMBRA_ENTRY __asan_get_alloc_stack, penumbra_abi_get_alloc_stack
PENUMBRA_ENTRY __asan_get_free_stack, penumbra_abi_get_free_stack
PENUMBRA_ENTRY __asan_get_shadow_mapping, penumbra_abi_get_shadow_mapping
PENUMBRA_ENTRY __sanitizer_get_ownership, penumbra_abi_get_ownership
PENUMBRA_ENTRY __sanitizer_get_allocated_size, penumbra_abi_get_allocated_size
PENUMBRA_ENTRY __sanitizer_get_allocated_begin, penumbra_abi_get_allocated_begin
PENUMBRA_ENTRY __sanitizer_start_switch_fiber, penumbra_abi_start_switch_fiber
PENUMBRA_ENTRY __sanitizer_finish_switch_fiber, penumbra_abi_finish_switch_fiber
// There is no fake stack, and nothing is in it.
PENUMBRA_ENTRY __asan_get_current_fake_stack, penumbra_abi_nothing
PENUMBRA_ENTRY __asan_addr_is_in_fake_stack, penumbra_abi_nothing

// sanitizer/lsan_interface.h: leaks are not looked for, so nothing need be left out of the search, and none is found.
// Annotated code under __SANITIZE_ADDRESS__ calls these without asking, and must link.
PENUMBRA_ENTRY __lsan_disable, penumbra_abi_nothing
PENUMBRA_ENTRY __lsan_enable, penumbra_abi_nothing
PENUMBRA_ENTRY __lsan_ignore_object, penumbra_abi_nothing
PENUMBRA_ENTRY __lsan_register_root_region, penumbra_abi_nothing
PENUMBRA_ENTRY __lsan_unregister_root_region, penumbra_abi_nothing
PENUMBRA_ENTRY __lsan_do_leak_check, penumbra_abi_nothing
PENUMBRA_ENTRY __lsan_do_recoverable_leak_check, penumbra_abi_nothing

  .section .note.GNU-stack, "", @progbits
