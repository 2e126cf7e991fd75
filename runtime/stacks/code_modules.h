// Which module a pc belongs to, and noticing when modules go away.
//
// Modules are found with glibc's lock-free _dl_find_object, which answers for everything the loader mapped, in any
// namespace, also inside dlopen and in signal handlers. Code that no module covers (JIT, stubs) has no answer.
//
// Rules in the cache (rule_cache.h) are true as long as the module they came from stays. So each module that rules
// came from is entered in a table with its identity (address range, link map, head of its .eh_frame_hdr), and
// revalidate_modules() asks _dl_find_object for each entry again: one that is gone or has become another module drops
// out, and the cache is emptied. When must that happen? The loader, when it unmaps a module, frees its link map
// *after* the unmapping, through our own free(); and a later module can only be mapped after that, since the loader's
// lock is held throughout. So it is enough that record() revalidates when its caller is the loader, before it looks at
// the cache: at that time the closed module is gone and no other is in its place. No dlclose hook is needed, and libc's
// own unseen closing (iconv, NSS) is noticed too. Where free() is not ours (heap=0) or the loader cannot be found, nobody
// tells, and record() reads no cache. unwind() never does: reports are rare, and right whatever happened before.
//
// Left to the program: tables are read where _dl_find_object said they are, so a walk over a return address into a
// module that another thread unmaps at that moment may fault. Only running code of a module that is being closed, or a
// garbage word on a broken stack, leads there; libgcc's unwinder has the same gap.
//
// I1  a rule is in the cache only if its module is in the table: find_module() enters it first; a remover takes the
//     module out, then raises the epoch, then empties the cache, and who stores a rule re-reads the epoch afterwards
//     and takes the rule out again if it changed (rule_cache.h).
//
// zone: signal-safe
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/stacks/cfi.h"

namespace penumbra::stacks {

struct CodeModule {
  std::uintptr_t start = 0;
  std::uintptr_t end = 0;
  ByteRange header;       // .eh_frame_hdr
  ByteRange frame;        // readable bytes around .eh_frame
  bool is_known = false;  // is in the table, so its rules may be cached
};

// False where no module of the loader's covers the pc, or the module has no unwind tables.
bool find_module(std::uintptr_t pc, CodeModule& module);

// Whether the loader mapped what lies there. False of what a program generated, and of all where glibc is older than 2.35.
bool is_module_code(std::uintptr_t pc);

// Whether it is known where the loader's own code lies; finds out when asked first.
bool is_loader_known();
// Whether the loader's own code covers the pc. False while that is not known.
bool is_loader_code(std::uintptr_t pc);
// The calling thread is about to have the loader allocate for a new thread, or (false) no longer: that changes no module,
// and looking at all of them costs more than creating the thread. record() then does not.
void expect_thread_set_up(bool expected);
// Where the loader's function is that frees what a thread had (_dl_deallocate_tls); until told, nobody knows.
void set_tls_freer(std::uintptr_t begin, std::size_t bytes);
// Is the loader, at this pc, busy with a thread's own memory, by one of the two above?
bool keeps_modules(std::uintptr_t pc);

// Drops cached rules if any module they came from is gone. One system call, about 0.4 us, per module in the table.
void revalidate_modules();

// Counts changes that revalidate_modules() saw.
std::uint32_t module_epoch();

}  // namespace penumbra::stacks
