#include "runtime/preload/operators.h"

#include "runtime/base/os_linux.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <new>

namespace penumbra::preload {
namespace {

constinit std::atomic<bool> g_replaced{false};

using NewHandler = void (*)();

// libstdc++'s and libc++'s names for the same thing.
constexpr const char* kGetNewHandler[] = {"_ZSt15get_new_handlerv"};
constexpr const char* kThrowBadAlloc[] = {"_ZSt17__throw_bad_allocv", "_ZNSt3__117__throw_bad_allocEv"};

// A handle of the loaded module that holds an address, or null. dlsym searches the module first, then what it
// needs.
void* module_handle(const void* address) {
  Dl_info info;
  if (::dladdr(address, &info) == 0) return nullptr;
  return PENUMBRA_NEXT_OF(dlopen)(info.dli_fname, RTLD_NOLOAD | RTLD_LAZY);
}

// A symbol of the C++ library that serves the code at `caller`, or null.
void* find_cxx_symbol(const char* name, const CodeContext& caller) {
  if (void* const symbol = ::dlsym(RTLD_DEFAULT, name)) return symbol;
  // A C++ library that was loaded for a plug-in only is known in the plug-in's own scope.
  void* const module = module_handle(reinterpret_cast<void*>(caller.pc - 1));
  return module != nullptr ? ::dlsym(module, name) : nullptr;
}

template <class Function, std::size_t N>
Function find_any(const char* const (&names)[N], const CodeContext& caller) {
  for (const char* const name : names) {
    if (void* const symbol = find_cxx_symbol(name, caller)) return reinterpret_cast<Function>(symbol);
  }
  return nullptr;
}

NewHandler new_handler(const CodeContext& caller) {
  const auto get = find_any<NewHandler (*)()>(kGetNewHandler, caller);
  return get != nullptr ? get() : nullptr;
}

}  // namespace

void* find_library_form(std::atomic<void*>& slot, const char* symbol, const CodeContext& caller) {
  if (void* const known = slot.load(std::memory_order_relaxed)) return known;
  void* const anchor = find_any<void*>(kGetNewHandler, caller);
  void* const library = anchor != nullptr ? module_handle(anchor) : nullptr;
  void* const form = library != nullptr ? ::dlsym(library, symbol) : nullptr;
  slot.store(form, std::memory_order_relaxed);
  return form;
}

bool has_new_handler(const CodeContext& caller) {
  return new_handler(caller) != nullptr;
}

void throw_bad_alloc(const CodeContext& caller) {
  if (const auto raise = find_any<void (*)()>(kThrowBadAlloc, caller)) raise();
  static constexpr char kLine[] = "penumbra: operator new: out of memory, and no C++ library to throw bad_alloc\n";
  os::write_all(2, kLine, sizeof kLine - 1);
  ::abort();
}

void* obtain_or_throw(const Request& request, const CodeContext& caller) {
  for (;;) {
    if (void* const object = obtain(request, caller)) return object;
    const NewHandler handler = new_handler(caller);
    if (handler == nullptr) throw_bad_alloc(caller);
    handler();
  }
}

void set_operators_are_replaced(bool replaced) {
  g_replaced.store(replaced, std::memory_order_relaxed);
}

bool operators_are_replaced() {
  return g_replaced.load(std::memory_order_relaxed);
}

}  // namespace penumbra::preload
