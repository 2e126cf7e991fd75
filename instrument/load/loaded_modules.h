// What the dynamic loader has loaded: the link maps of all its namespaces, read without its locks and without libc.
//
// Found as a debugger finds them: DT_DEBUG of the main program names the first r_debug, r_next leads to the other
// namespaces (glibc 2.35 and later). Program headers come from the module's own first page, because dl_iterate_phdr and
// _dl_find_object do not know a module that is just being loaded (process ruling 10). r_state is not looked at: a copy
// relocation of _r_debug makes it stale.
//
// The caller holds the loader's lock, or no other thread exists yet.
//
// zone: signal-safe
#pragma once

#include <link.h>

#include <cstddef>
#include <cstdint>

namespace penumbra::load {

struct LoadedModule {
  const link_map* map = nullptr;
  std::uintptr_t base = 0;     // load bias
  const char* path = nullptr;  // as the loader opened it; empty for the main program
  bool is_main = false;
};

struct ProgramHeaders {
  const ElfW(Phdr) * first = nullptr;
  std::size_t count = 0;

  const ElfW(Phdr) * begin() const { return first; }
  const ElfW(Phdr) * end() const { return first + count; }
};

using ModuleVisitor = void (*)(const LoadedModule& module, void* cookie);
// In the order of loading, one namespace after the other.
void for_each_loaded_module(ModuleVisitor visit, void* cookie);

// Empty where the module does not begin with its ELF header.
ProgramHeaders headers_of(const LoadedModule& module);

// The function that the loader calls before and after it has changed the link maps; 0 where there is none.
std::uintptr_t loader_event_function();

}  // namespace penumbra::load
