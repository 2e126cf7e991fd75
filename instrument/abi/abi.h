// The compiler entry points, seen from above: how the runtime starts them, steps aside, and gives them what they need.
//
// Compilers call names (__asan_load8_noabort, __asan_register_globals, ...); the runtime calls these. Before start()
// every check passes and every poisoning does nothing, so code that runs too early runs unchecked.
//
// zone: nomalloc
#pragma once

#include <pthread.h>

#include <cstddef>
#include <cstdint>

#include "runtime/base/address.h"
#include "runtime/base/fault.h"

namespace penumbra::abi {

// What a heap object is, for the allocator's and the sanitizer's query functions.
struct ObjectInfo {
  AppAddr begin;
  std::size_t bytes = 0;
  bool is_live = false;
  std::uint32_t allocated_by = 0;  // thread ids
  std::uint32_t freed_by = 0;
};

// What lies above us. A null member means that nobody can answer; the function behind it then says "unknown".
struct Hooks {
  // The object that covers, or last covered, an address (redzones included); false where there is none.
  bool (*describe_object)(AppAddr address, ObjectInfo& info) = nullptr;
  // Frames of its allocation (freed false) or free stack; returns how many.
  std::size_t (*object_stack)(AppAddr address, bool freed, std::uintptr_t* frames, std::size_t max) = nullptr;
  // Prints what is known of an address, or the stack of the caller, where reports go.
  void (*print_address)(AppAddr address) = nullptr;
  void (*print_stack)(const CodeContext& context) = nullptr;
  // Ends the process after a report, as fault=panic does.
  void (*end_process)() = nullptr;
  // Called in each thread that pthread_create() began, before and after what it runs. `stack` is what lend_stack() gave.
  void (*thread_begins)(void* stack) = nullptr;
  void (*thread_ends)() = nullptr;
  // A stack for a thread that is to be created with `wanted` (null: the defaults): `given` gets attributes that name it.
  // Null: the thread is created as it was wanted.
  void* (*lend_stack)(const pthread_attr_t* wanted, pthread_attr_t& given, const CodeContext& caller) = nullptr;
  // After pthread_create() with `given`, with an error or not.
  void (*thread_created)(void* stack, const pthread_attr_t* wanted, pthread_attr_t& given, int error) = nullptr;
};

void set_hooks(const Hooks& hooks);
const Hooks& hooks();

// The shadow stands, the span is set: checks check from now on. Once, before the program's first thread.
void start();
// Another sanitizer is in the process: every entry point forwards to its definition. Instead of start().
void stand_aside();
bool is_aside();

// For the SIGSEGV handler, first of all: if the shadow load of an outline check faulted (its address lies in the shadow
// itself), makes the check return, so that the checked instruction faults by itself with the right siginfo. Signal-safe.
bool skip_faulting_check(void* ucontext);

// A fault of compiled code or of the interface above it. `aborts`: the compiler counts on our not coming back.
void report(const Fault& fault, bool aborts);

// The runtime has reported `fault` in KASAN's word for it: kept for __asan_get_report_*, told to the program's callbacks.
void note_report(const Fault& fault, const char* word, const char* text);
// The process ends because of a report: the program's death callback runs, once.
void run_death_callback();

}  // namespace penumbra::abi
