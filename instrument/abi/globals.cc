#include "instrument/abi/globals.h"

#include "instrument/abi/compiled.h"
#include "instrument/abi/page_pool.h"
#include "runtime/base/locks.h"
#include "shadow/address_map.h"
#include "shadow/poison.h"

namespace penumbra::abi {
namespace {

// What gcc 12 and clang 14..19 emit per global (ABI version 8 of the compilers' struct; version 5 and later agree).
struct SourceLocation {
  const char* file;
  int line;
  int column;
};

struct GlobalDescriptor {
  std::uintptr_t begin;
  std::size_t bytes;
  std::size_t bytes_with_redzone;
  const char* name;
  const char* module;
  std::size_t has_dynamic_init;
  const SourceLocation* location;  // null from clang 15 on
  std::uintptr_t odr_indicator;
};
static_assert(sizeof(GlobalDescriptor) == 64);

struct Batch {
  const GlobalDescriptor* globals;
  std::size_t count;
  Batch* next;
};

constinit Mutex g_lock;
constinit PagePool<Batch> g_pool;
constinit Batch* g_batches = nullptr;
constinit std::size_t g_count = 0;

void poison_global(const GlobalDescriptor& global) {
  shadow::unpoison_with_tail(AppAddr(global.begin), global.bytes, global.bytes_with_redzone,
                             shadow::ShadowTag::kGlobalRedzone);
}

void clear_global(const GlobalDescriptor& global) {
  shadow::unpoison(AppAddr(global.begin), global.bytes_with_redzone);
}

void fill_info(const GlobalDescriptor& global, GlobalInfo& info) {
  info = {};
  info.begin = AppAddr(global.begin);
  info.bytes = global.bytes;
  info.bytes_with_redzone = global.bytes_with_redzone;
  info.name = global.name;
  info.module = global.module;
  if (global.location != nullptr) {
    info.file = global.location->file;
    info.line = static_cast<std::uint32_t>(global.location->line);
  }
}

}  // namespace

bool describe_global(AppAddr address, GlobalInfo& info) {
  if (!g_lock.try_lock()) return false;
  // An access left of a global lies in the redzone of the one before it in memory, or in none: then the nearest one
  // that begins after the address, within a redzone's reach, is the one that is meant.
  constexpr std::size_t kReach = 64;
  const GlobalDescriptor* nearest = nullptr;
  bool covered = false;
  for (const Batch* batch = g_batches; batch != nullptr && !covered; batch = batch->next) {
    for (std::size_t i = 0; i < batch->count; ++i) {
      const GlobalDescriptor& global = batch->globals[i];
      if (address.value >= global.begin && address.value - global.begin < global.bytes_with_redzone) {
        nearest = &global;
        covered = true;
        break;
      }
      if (global.begin > address.value && global.begin - address.value <= kReach &&
          (nearest == nullptr || global.begin < nearest->begin)) {
        nearest = &global;
      }
    }
  }
  if (nearest != nullptr) fill_info(*nearest, info);
  g_lock.unlock();
  return nearest != nullptr;
}

void lock_globals() {
  g_lock.lock();
}

void unlock_globals() {
  g_lock.unlock();
}

void reset_globals_lock() {
  g_lock.reset_after_fork();
}

std::size_t registered_globals() {
  return g_count;
}

extern "C" {

__attribute__((visibility("hidden"))) void penumbra_abi_register_globals(const GlobalDescriptor* globals,
                                                                         std::size_t count) {
  note_compiled_code();
  require_shadow_for_compiled_code();
  if (!shadow::is_reserved() || count == 0) return;
  for (std::size_t i = 0; i < count; ++i) poison_global(globals[i]);
  const LockGuard guard(g_lock);
  // Without memory for the list the redzones still work; only the names are missing.
  Batch* const batch = g_pool.take();
  if (batch == nullptr) return;
  *batch = {globals, count, g_batches};
  g_batches = batch;
  g_count += count;
}

__attribute__((visibility("hidden"))) void penumbra_abi_unregister_globals(const GlobalDescriptor* globals,
                                                                           std::size_t count) {
  if (!shadow::is_reserved() || count == 0) return;
  for (std::size_t i = 0; i < count; ++i) clear_global(globals[i]);
  const LockGuard guard(g_lock);
  for (Batch** link = &g_batches; *link != nullptr; link = &(*link)->next) {
    Batch* const batch = *link;
    if (batch->globals != globals) continue;
    *link = batch->next;
    g_count -= batch->count;
    g_pool.give(batch);
    return;
  }
}

}  // extern "C"

}  // namespace penumbra::abi
