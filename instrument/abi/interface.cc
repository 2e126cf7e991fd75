// The rest of the sanitizers' public interface that can be answered truthfully: sanitizer/asan_interface.h,
// allocator_interface.h and common_interface_defs.h.
//
// What is left out is not defined at all, because programs ask for names weakly and believe them: malloc hooks,
// symbolisation of single addresses, ASan's options. Values keep ASan's meaning where it has
// one; facts about objects and stacks come through Hooks.
//
// zone: signal-safe, where not said otherwise
#include <atomic>
#include <cstdint>

#include "instrument/abi/abi.h"
#include "instrument/abi/globals.h"
#include "instrument/abi/stack_bounds.h"
#include "shadow/address_map.h"
#include "shadow/check.h"
#include "shadow/encoding.h"

// A program may define it; called after each report.
extern "C" __attribute__((weak, visibility("default"))) void __asan_on_error();

namespace penumbra::abi {
namespace {

// The last report; written by the thread that holds the report's lock.
struct LastReport {
  std::atomic<bool> present{false};
  Fault fault;
  char word[64] = {};
};

constinit LastReport g_last;
constinit std::atomic<void (*)(const char*)> g_report_callback{nullptr};
constinit std::atomic<void (*)()> g_death_callback{nullptr};
constinit std::atomic<bool> g_crash_state_taken{false};
constinit thread_local Stack t_entering;  // the fiber between start and finish of a switch

void copy_text(char* to, std::size_t room, const char* from) {
  if (to == nullptr || room == 0) return;
  std::size_t i = 0;
  for (; from[i] != 0 && i + 1 < room; ++i) to[i] = from[i];
  to[i] = 0;
}

bool describe_object(AppAddr address, ObjectInfo& info) {
  return hooks().describe_object != nullptr && hooks().describe_object(address, info);
}

// The live object that begins exactly here.
bool live_object(AppAddr address, ObjectInfo& info) {
  return describe_object(address, info) && info.is_live && info.begin == address;
}

std::size_t object_stack(AppAddr address, bool freed, std::uintptr_t* frames, std::size_t max, int* thread) {
  ObjectInfo info;
  if (!describe_object(address, info) || (freed && info.is_live)) return 0;
  if (thread != nullptr) *thread = static_cast<int>(freed ? info.freed_by : info.allocated_by);
  return hooks().object_stack != nullptr ? hooks().object_stack(address, freed, frames, max) : 0;
}

}  // namespace

void note_report(const Fault& fault, const char* word, const char* text) {
  g_last.fault = fault;
  copy_text(g_last.word, sizeof g_last.word, word);
  g_last.present.store(true, std::memory_order_release);
  if (auto* const callback = g_report_callback.load(std::memory_order_acquire)) callback(text);
  if (__asan_on_error != nullptr) __asan_on_error();
}

void run_death_callback() {
  if (auto* const callback = g_death_callback.exchange(nullptr, std::memory_order_acq_rel)) callback();
}

extern "C" {

#define HIDDEN __attribute__((visibility("hidden")))

// --- reports ---

HIDDEN int penumbra_abi_report_present() {
  return g_last.present.load(std::memory_order_acquire) ? 1 : 0;
}

HIDDEN std::uintptr_t penumbra_abi_report_pc() {
  return g_last.fault.context.pc;
}

HIDDEN std::uintptr_t penumbra_abi_report_bp() {
  return g_last.fault.context.bp;
}

HIDDEN std::uintptr_t penumbra_abi_report_sp() {
  return g_last.fault.context.sp;
}

HIDDEN std::uintptr_t penumbra_abi_report_address() {
  return g_last.fault.addr.value;
}

HIDDEN int penumbra_abi_report_access_type() {
  return g_last.fault.is_write ? 1 : 0;
}

HIDDEN std::size_t penumbra_abi_report_access_size() {
  return g_last.fault.size;
}

// KASAN's word for it.
HIDDEN const char* penumbra_abi_report_description() {
  return g_last.word;
}

HIDDEN void penumbra_abi_report_error(std::uintptr_t pc, std::uintptr_t bp, std::uintptr_t sp, AppAddr address,
                                      int is_write, std::size_t bytes) {
  Fault fault;
  fault.is_write = is_write != 0;
  fault.addr = address;
  fault.size = bytes;
  const AppAddr bad = shadow::first_bad(address, bytes);
  fault.bad = bad == shadow::kNoBadByte ? address : bad;
  fault.context = {pc, sp, bp};
  report(fault, false);
}

HIDDEN void penumbra_abi_set_report_callback(void (*callback)(const char*)) {
  g_report_callback.store(callback);
}

HIDDEN void penumbra_abi_set_death_callback(void (*callback)()) {
  g_death_callback.store(callback);
}

// 1 for the first that asks: whoever reports a crash of its own (libFuzzer) asks before.
HIDDEN int penumbra_abi_acquire_crash_state() {
  return g_crash_state_taken.exchange(true) ? 0 : 1;
}

HIDDEN void penumbra_abi_print_stack_trace() {
  if (hooks().print_stack != nullptr) hooks().print_stack(PENUMBRA_CALLER());
}

HIDDEN void penumbra_abi_describe_address(AppAddr address) {
  if (hooks().print_address != nullptr) hooks().print_address(address);
}

// --- what lies at an address ---

// "global", "heap", "stack", "shadow" or "invalid", as ASan; the name is the global's. Null pointers are left out.
HIDDEN const char* penumbra_abi_locate_address(AppAddr address, char* name, std::size_t name_bytes,
                                               std::uintptr_t* begin, std::size_t* bytes) {
  const auto answer = [&](const char* kind, const char* what, AppAddr at, std::size_t size) {
    copy_text(name, name_bytes, what);
    if (begin != nullptr) *begin = at.value;
    if (bytes != nullptr) *bytes = size;
    return kind;
  };
  if (!shadow::has_shadow(address)) {
    return answer(address.value < kUserAddressEnd ? "shadow" : "invalid", "", AppAddr(), 0);
  }
  GlobalInfo global;
  if (describe_global(address, global)) return answer("global", global.name, global.begin, global.bytes);
  ObjectInfo object;
  if (describe_object(address, object)) return answer("heap", "", object.begin, object.bytes);
  if (const Stack stack = own_stack(); stack.contains(address)) {
    return answer("stack", "", stack.range.begin, stack.range.bytes());
  }
  return answer("invalid", "", AppAddr(), 0);
}

HIDDEN std::size_t penumbra_abi_get_alloc_stack(AppAddr address, std::uintptr_t* frames, std::size_t max,
                                                int* thread) {
  return object_stack(address, false, frames, max, thread);
}

HIDDEN std::size_t penumbra_abi_get_free_stack(AppAddr address, std::uintptr_t* frames, std::size_t max,
                                               int* thread) {
  return object_stack(address, true, frames, max, thread);
}

HIDDEN void penumbra_abi_get_shadow_mapping(std::size_t* shift, std::size_t* offset) {
  if (shift != nullptr) *shift = shadow::kGranuleShift;
  if (offset != nullptr) *offset = shadow::kShadowOffset;
}

// --- the allocator ---

HIDDEN int penumbra_abi_get_ownership(AppAddr address) {
  ObjectInfo info;
  return live_object(address, info) ? 1 : 0;
}

HIDDEN std::size_t penumbra_abi_get_allocated_size(AppAddr address) {
  ObjectInfo info;
  return live_object(address, info) ? info.bytes : 0;
}

HIDDEN std::uintptr_t penumbra_abi_get_allocated_begin(AppAddr address) {
  ObjectInfo info;
  return describe_object(address, info) && info.is_live && address >= info.begin && address - info.begin < info.bytes
             ? info.begin.value
             : 0;
}

// --- fibers ---

// The program is about to run on another stack: [bottom, bottom + bytes). There are no fake stacks to save.
HIDDEN void penumbra_abi_start_switch_fiber(void** saved, AppAddr bottom, std::size_t bytes) {
  if (saved != nullptr) *saved = nullptr;
  t_entering = {StackKind::kOwn, {bottom, bottom + bytes}};
}

// It does now; says where the last one was.
HIDDEN void penumbra_abi_finish_switch_fiber(void*, void** old_bottom, std::size_t* old_bytes) {
  const Stack left = own_stack();
  if (old_bottom != nullptr) *old_bottom = left.range.begin.ptr<void>();
  if (old_bytes != nullptr) *old_bytes = left.range.bytes();
  if (t_entering.kind != StackKind::kNone) enter_stack(t_entering);
  t_entering = {};
}

}  // extern "C"

}  // namespace penumbra::abi
