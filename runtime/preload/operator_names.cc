// The replaceable operators new and delete: all twenty of them, as libstdc++ behaves.
//
// Where the whole base family is ours, every form goes straight to the heap with its allocator's name, and
// mismatches are told. Where the program has replaced a base form, the others forward to it through its
// symbol, in the chain that the standard lays down:
//
//     new[](n) -> new(n)         delete[](p) -> delete(p)         new[](n, a) -> new(n, a)
//     delete(p, n), delete(p, nothrow) -> delete(p)               delete[](p, n) -> delete[](p), and so on
//
// A nothrow form must catch what new, or a new_handler, throws. This library cannot catch; where that could
// happen libstdc++'s own form is called, which calls operator new through its symbol: ours, or the program's.
//
// zone: nomalloc
#include "runtime/base/config.h"
#include "runtime/base/export.h"
#include "runtime/preload/objects.h"
#include "runtime/preload/operators.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <new>

namespace penumbra::preload {
namespace {

using std::align_val_t;

constexpr auto kNew = AllocatorName::kNew;
constexpr auto kNewArray = AllocatorName::kNewArray;
constexpr std::size_t kAnySize = ~std::size_t{0};

constexpr bool is_valid(align_val_t alignment) {
  return is_power_of_two(static_cast<std::size_t>(alignment));
}

constexpr std::size_t aligned(align_val_t alignment) {
  return std::max(static_cast<std::size_t>(alignment), std::size_t{16});
}

// Mixed with operators of the program's, nobody can say which belongs to which.
AllocatorName name_of(AllocatorName by) {
  return operators_are_replaced() ? AllocatorName::kNone : by;
}

// libstdc++'s own definition of an operator, past ours, libmimalloc's and the program's. The symbol is a
// template argument so that each has a slot of its own.
template <std::size_t N>
struct Symbol {
  constexpr Symbol(const char (&name)[N]) { std::copy_n(name, N, text); }  // NOLINT: meant to convert

  char text[N];
};

template <Symbol kSymbol>
constinit std::atomic<void*> g_form{nullptr};

template <Symbol kSymbol, class... Arguments>
void* library_new(const CodeContext& caller, Arguments... arguments) {
  if (void* const form = find_library_form(g_form<kSymbol>, kSymbol.text, caller)) {
    return reinterpret_cast<void* (*)(Arguments...)>(form)(arguments...);
  }
  throw_bad_alloc(caller);
}

template <Symbol kSymbol, class... Arguments>
void library_delete(const CodeContext& caller, Arguments... arguments) {
  if (void* const form = find_library_form(g_form<kSymbol>, kSymbol.text, caller)) {
    reinterpret_cast<void (*)(Arguments...)>(form)(arguments...);
  }
}

void delete_checked(void* p, AllocatorName by, std::size_t bytes, std::size_t alignment, const CodeContext& caller) {
  const char* const function = by == kNewArray ? "operator delete[]" : "operator delete";
  if (!operators_are_replaced()) check_sized_delete(p, bytes, alignment, caller, function);
  release(p, name_of(by), caller, function);
}

}  // namespace
}  // namespace penumbra::preload

using namespace penumbra;           // NOLINT: definitions of global names follow
using namespace penumbra::preload;  // NOLINT

// Each operator under a C name and its linker symbol: calls by the C name go through the symbol, so to
// whoever defined it first, and own_* is a second, hidden name of our definition, for comparing the two.
PENUMBRA_EXPORT void* new_plain(std::size_t bytes) asm("_Znwm");
PENUMBRA_EXPORT void* new_array(std::size_t bytes) asm("_Znam");
PENUMBRA_EXPORT void* new_nothrow(std::size_t bytes, const std::nothrow_t& tag) asm("_ZnwmRKSt9nothrow_t");
PENUMBRA_EXPORT void* new_array_nothrow(std::size_t bytes, const std::nothrow_t& tag) asm("_ZnamRKSt9nothrow_t");
PENUMBRA_EXPORT void* new_aligned(std::size_t bytes, std::align_val_t alignment) asm("_ZnwmSt11align_val_t");
PENUMBRA_EXPORT void* new_array_aligned(std::size_t bytes, std::align_val_t alignment) asm("_ZnamSt11align_val_t");
PENUMBRA_EXPORT void* new_aligned_nothrow(std::size_t bytes, std::align_val_t alignment,
                                          const std::nothrow_t& tag) asm("_ZnwmSt11align_val_tRKSt9nothrow_t");
PENUMBRA_EXPORT void* new_array_aligned_nothrow(std::size_t bytes, std::align_val_t alignment,
                                                const std::nothrow_t& tag) asm("_ZnamSt11align_val_tRKSt9nothrow_t");
PENUMBRA_EXPORT void delete_plain(void* p) asm("_ZdlPv");
PENUMBRA_EXPORT void delete_array(void* p) asm("_ZdaPv");
PENUMBRA_EXPORT void delete_sized(void* p, std::size_t bytes) asm("_ZdlPvm");
PENUMBRA_EXPORT void delete_array_sized(void* p, std::size_t bytes) asm("_ZdaPvm");
PENUMBRA_EXPORT void delete_aligned(void* p, std::align_val_t alignment) asm("_ZdlPvSt11align_val_t");
PENUMBRA_EXPORT void delete_array_aligned(void* p, std::align_val_t alignment) asm("_ZdaPvSt11align_val_t");
PENUMBRA_EXPORT void delete_sized_aligned(void* p, std::size_t bytes,
                                          std::align_val_t alignment) asm("_ZdlPvmSt11align_val_t");
PENUMBRA_EXPORT void delete_array_sized_aligned(void* p, std::size_t bytes,
                                                std::align_val_t alignment) asm("_ZdaPvmSt11align_val_t");
PENUMBRA_EXPORT void delete_nothrow(void* p, const std::nothrow_t& tag) asm("_ZdlPvRKSt9nothrow_t");
PENUMBRA_EXPORT void delete_array_nothrow(void* p, const std::nothrow_t& tag) asm("_ZdaPvRKSt9nothrow_t");
PENUMBRA_EXPORT void delete_aligned_nothrow(void* p, std::align_val_t alignment,
                                            const std::nothrow_t& tag) asm("_ZdlPvSt11align_val_tRKSt9nothrow_t");
PENUMBRA_EXPORT void delete_array_aligned_nothrow(void* p, std::align_val_t alignment, const std::nothrow_t& tag) asm(
    "_ZdaPvSt11align_val_tRKSt9nothrow_t");

extern "C" {
__attribute__((alias("_Znwm"), visibility("hidden"))) void* own_new_plain(std::size_t bytes);
__attribute__((alias("_Znam"), visibility("hidden"))) void* own_new_array(std::size_t bytes);
__attribute__((alias("_ZdlPv"), visibility("hidden"))) void own_delete_plain(void* p);
__attribute__((alias("_ZdaPv"), visibility("hidden"))) void own_delete_array(void* p);
}

namespace penumbra::preload {

void find_replaced_operators() {
  // Through a volatile, because a compiler that knows both names to be one function would not ask.
  void* (*volatile const news[])(std::size_t) = {new_plain, own_new_plain, new_array, own_new_array};
  void (*volatile const deletes[])(void*) = {delete_plain, own_delete_plain, delete_array, own_delete_array};
  const bool ours = news[0] == news[1] && news[2] == news[3] && deletes[0] == deletes[1] && deletes[2] == deletes[3];
  set_operators_are_replaced(!ours);
}

}  // namespace penumbra::preload

// The base forms: who replaces them, replaces the rest.

void* new_plain(std::size_t bytes) {
  if (!is_ours()) return library_new<"_Znwm">(PENUMBRA_CALLER(), bytes);
  return obtain_or_throw({.bytes = bytes, .by = name_of(kNew)}, PENUMBRA_CALLER());
}

void* new_array(std::size_t bytes) {
  if (!is_ours()) return library_new<"_Znam">(PENUMBRA_CALLER(), bytes);
  if (operators_are_replaced()) return new_plain(bytes);
  return obtain_or_throw({.bytes = bytes, .by = kNewArray}, PENUMBRA_CALLER());
}

void delete_plain(void* p) {
  if (!is_ours()) return library_delete<"_ZdlPv">(PENUMBRA_CALLER(), p);
  delete_checked(p, kNew, kAnySize, 0, PENUMBRA_CALLER());
}

void delete_array(void* p) {
  if (!is_ours()) return library_delete<"_ZdaPv">(PENUMBRA_CALLER(), p);
  if (operators_are_replaced()) return delete_plain(p);
  delete_checked(p, kNewArray, kAnySize, 0, PENUMBRA_CALLER());
}

// The aligned base forms do not forward to the plain ones: there is no way to ask those for an alignment.

void* new_aligned(std::size_t bytes, std::align_val_t alignment) {
  if (!is_ours()) return library_new<"_ZnwmSt11align_val_t">(PENUMBRA_CALLER(), bytes, alignment);
  if (!is_valid(alignment)) throw_bad_alloc(PENUMBRA_CALLER());
  return obtain_or_throw({.bytes = bytes, .alignment = aligned(alignment), .by = name_of(kNew)}, PENUMBRA_CALLER());
}

void* new_array_aligned(std::size_t bytes, std::align_val_t alignment) {
  if (!is_ours()) return library_new<"_ZnamSt11align_val_t">(PENUMBRA_CALLER(), bytes, alignment);
  if (operators_are_replaced()) return new_aligned(bytes, alignment);
  if (!is_valid(alignment)) throw_bad_alloc(PENUMBRA_CALLER());
  return obtain_or_throw({.bytes = bytes, .alignment = aligned(alignment), .by = kNewArray}, PENUMBRA_CALLER());
}

void delete_aligned(void* p, std::align_val_t alignment) {
  if (!is_ours()) return library_delete<"_ZdlPvSt11align_val_t">(PENUMBRA_CALLER(), p, alignment);
  delete_checked(p, kNew, kAnySize, aligned(alignment), PENUMBRA_CALLER());
}

void delete_array_aligned(void* p, std::align_val_t alignment) {
  if (!is_ours()) return library_delete<"_ZdaPvSt11align_val_t">(PENUMBRA_CALLER(), p, alignment);
  if (operators_are_replaced()) return delete_aligned(p, alignment);
  delete_checked(p, kNewArray, kAnySize, aligned(alignment), PENUMBRA_CALLER());
}

// Sized forms: the size is checked where it can be, and forwarded nowhere.

void delete_sized(void* p, std::size_t bytes) {
  if (!is_ours()) return library_delete<"_ZdlPvm">(PENUMBRA_CALLER(), p, bytes);
  if (operators_are_replaced()) return delete_plain(p);
  delete_checked(p, kNew, bytes, 0, PENUMBRA_CALLER());
}

void delete_array_sized(void* p, std::size_t bytes) {
  if (!is_ours()) return library_delete<"_ZdaPvm">(PENUMBRA_CALLER(), p, bytes);
  if (operators_are_replaced()) return delete_array(p);
  delete_checked(p, kNewArray, bytes, 0, PENUMBRA_CALLER());
}

void delete_sized_aligned(void* p, std::size_t bytes, std::align_val_t alignment) {
  if (!is_ours()) return library_delete<"_ZdlPvmSt11align_val_t">(PENUMBRA_CALLER(), p, bytes, alignment);
  if (operators_are_replaced()) return delete_aligned(p, alignment);
  delete_checked(p, kNew, bytes, aligned(alignment), PENUMBRA_CALLER());
}

void delete_array_sized_aligned(void* p, std::size_t bytes, std::align_val_t alignment) {
  if (!is_ours()) return library_delete<"_ZdaPvmSt11align_val_t">(PENUMBRA_CALLER(), p, bytes, alignment);
  if (operators_are_replaced()) return delete_array_aligned(p, alignment);
  delete_checked(p, kNewArray, bytes, aligned(alignment), PENUMBRA_CALLER());
}

// Nothrow forms: null is the answer only where nothing may throw on the way to it.

void* new_nothrow(std::size_t bytes, const std::nothrow_t& tag) {
  if (is_ours() && !operators_are_replaced()) {
    void* const p = obtain({.bytes = bytes, .by = kNew}, PENUMBRA_CALLER());
    if (p != nullptr || !has_new_handler(PENUMBRA_CALLER())) return p;
  }
  return library_new<"_ZnwmRKSt9nothrow_t", std::size_t, const std::nothrow_t&>(PENUMBRA_CALLER(), bytes, tag);
}

void* new_array_nothrow(std::size_t bytes, const std::nothrow_t& tag) {
  if (is_ours() && !operators_are_replaced()) {
    void* const p = obtain({.bytes = bytes, .by = kNewArray}, PENUMBRA_CALLER());
    if (p != nullptr || !has_new_handler(PENUMBRA_CALLER())) return p;
  }
  return library_new<"_ZnamRKSt9nothrow_t", std::size_t, const std::nothrow_t&>(PENUMBRA_CALLER(), bytes, tag);
}

void* new_aligned_nothrow(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t& tag) {
  if (is_ours() && !operators_are_replaced()) {
    if (!is_valid(alignment)) return nullptr;
    void* const p = obtain({.bytes = bytes, .alignment = aligned(alignment), .by = kNew}, PENUMBRA_CALLER());
    if (p != nullptr || !has_new_handler(PENUMBRA_CALLER())) return p;
  }
  return library_new<"_ZnwmSt11align_val_tRKSt9nothrow_t", std::size_t, std::align_val_t, const std::nothrow_t&>(
      PENUMBRA_CALLER(), bytes, alignment, tag);
}

void* new_array_aligned_nothrow(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t& tag) {
  if (is_ours() && !operators_are_replaced()) {
    if (!is_valid(alignment)) return nullptr;
    void* const p = obtain({.bytes = bytes, .alignment = aligned(alignment), .by = kNewArray}, PENUMBRA_CALLER());
    if (p != nullptr || !has_new_handler(PENUMBRA_CALLER())) return p;
  }
  return library_new<"_ZnamSt11align_val_tRKSt9nothrow_t", std::size_t, std::align_val_t, const std::nothrow_t&>(
      PENUMBRA_CALLER(), bytes, alignment, tag);
}

void delete_nothrow(void* p, const std::nothrow_t& tag) {
  if (!is_ours())
    return library_delete<"_ZdlPvRKSt9nothrow_t", void*, const std::nothrow_t&>(PENUMBRA_CALLER(), p, tag);
  if (operators_are_replaced()) return delete_plain(p);
  delete_checked(p, kNew, kAnySize, 0, PENUMBRA_CALLER());
}

void delete_array_nothrow(void* p, const std::nothrow_t& tag) {
  if (!is_ours())
    return library_delete<"_ZdaPvRKSt9nothrow_t", void*, const std::nothrow_t&>(PENUMBRA_CALLER(), p, tag);
  if (operators_are_replaced()) return delete_array(p);
  delete_checked(p, kNewArray, kAnySize, 0, PENUMBRA_CALLER());
}

void delete_aligned_nothrow(void* p, std::align_val_t alignment, const std::nothrow_t& tag) {
  if (!is_ours()) {
    return library_delete<"_ZdlPvSt11align_val_tRKSt9nothrow_t", void*, std::align_val_t, const std::nothrow_t&>(
        PENUMBRA_CALLER(), p, alignment, tag);
  }
  if (operators_are_replaced()) return delete_aligned(p, alignment);
  delete_checked(p, kNew, kAnySize, aligned(alignment), PENUMBRA_CALLER());
}

void delete_array_aligned_nothrow(void* p, std::align_val_t alignment, const std::nothrow_t& tag) {
  if (!is_ours()) {
    return library_delete<"_ZdaPvSt11align_val_tRKSt9nothrow_t", void*, std::align_val_t, const std::nothrow_t&>(
        PENUMBRA_CALLER(), p, alignment, tag);
  }
  if (operators_are_replaced()) return delete_array_aligned(p, alignment);
  delete_checked(p, kNewArray, kAnySize, aligned(alignment), PENUMBRA_CALLER());
}
