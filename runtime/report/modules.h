// Which module a code address belongs to, and its nearest dynamic symbol, without the loader's lock.
//
// Loaded modules are asked of glibc's _dl_find_object, which is lock-free and may be called in signal handlers and
// inside the loader. Modules that have been closed are remembered: remember_all() takes a snapshot at a safe point
// (before dlclose), so that the stack of an allocation made by a plugin still names the plugin. Anything else that is
// mapped from a file is found in /proc/self/maps, as long as the process may still open it.
//
// I1  remembered modules are only appended, and published by their count: readers need no lock.
//
// zone: signal-safe, but remember_all()
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "runtime/base/config.h"

namespace penumbra::report {

struct Module {
  std::uintptr_t begin = 0;  // mapped addresses
  std::uintptr_t end = 0;
  std::uintptr_t bias = 0;     // address in memory less address in the file
  std::uintptr_t dynamic = 0;  // the dynamic section in memory, 0 when the module is no longer loaded
  std::uintptr_t eh_frame_header = 0;
  bool is_loaded = false;
  std::uint8_t build_id_bytes = 0;
  std::array<std::uint8_t, 20> build_id{};
  char path[512] = {};

  const char* base_name() const;
};

// False where no file is mapped at `pc`.
bool find_module(std::uintptr_t pc, Module& module);

// Remembers every module that is loaded now. Takes the loader's lock: never in a signal handler.
void remember_all();

struct Symbol {
  const char* name = nullptr;  // in the module's own string table; null when there is none
  std::uintptr_t begin = 0;    // in memory
  std::size_t bytes = 0;
  bool covers = false;  // the address lies inside [begin, begin + bytes)
};

// The dynamic symbol that covers `pc`, else the nearest one before it.
Symbol nearest_symbol(const Module& module, std::uintptr_t pc);

struct Bounds {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;  // 0: unknown
};

// The function around `pc` as the unwind table has it, for code without symbols.
Bounds function_bounds(const Module& module, std::uintptr_t pc);

// Keeps the executable's path, which its link map lacks. Called once at start.
void remember_executable();

}  // namespace penumbra::report
