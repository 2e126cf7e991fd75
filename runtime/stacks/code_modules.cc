#include "runtime/stacks/code_modules.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/auxv.h>

#include <atomic>

#include "runtime/base/config.h"
#include "runtime/base/os_linux.h"
#include "runtime/base/raw_memory.h"
#include "runtime/stacks/rule_cache.h"

// Since glibc 2.35. Where it is missing no module is ever found, and stacks are followed by frame pointers only.
#pragma weak _dl_find_object

namespace penumbra::stacks {
namespace {

// Modules whose rules may be cached. More modules than this are unwound exactly, but slowly.
constexpr std::size_t kKnownModules = 1024;

struct KnownModule {
  std::atomic<std::uintptr_t> start{0};  // 0: free
  std::atomic<std::uint64_t> identity{0};
};

constinit KnownModule g_known[kKnownModules];
constinit std::atomic<std::uint32_t> g_known_end{0};  // slots from here on were never used
constinit std::atomic<std::uint32_t> g_epoch{0};
constinit std::atomic<std::uintptr_t> g_loader_start{0};
constinit std::atomic<std::uintptr_t> g_loader_end{0};
constinit std::atomic<std::uintptr_t> g_tls_freer{0};
constinit std::atomic<std::uintptr_t> g_tls_freer_bytes{0};
constinit thread_local bool t_sets_up_thread = false;

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
  return hash ^ hash >> 29;
}

// What every .eh_frame_hdr begins with: version, three encodings, distance to .eh_frame, number of entries.
struct TableHead {
  std::uint64_t first = 0;
  std::uint32_t count = 0;
} __attribute__((packed));

// Two modules at one address differ in at least one of these, or are the same file, whose rules are the same.
std::uint64_t identity_of(const dl_find_object& found, const TableHead& head) {
  std::uint64_t hash = mix(1, reinterpret_cast<std::uintptr_t>(found.dlfo_map_start));
  hash = mix(hash, reinterpret_cast<std::uintptr_t>(found.dlfo_map_end));
  hash = mix(hash, reinterpret_cast<std::uintptr_t>(found.dlfo_link_map));
  hash = mix(hash, reinterpret_cast<std::uintptr_t>(found.dlfo_eh_frame));
  return mix(mix(hash, head.first), head.count) | 1;
}

bool ask_loader(std::uintptr_t pc, dl_find_object& found) {
  return &_dl_find_object != nullptr && _dl_find_object(reinterpret_cast<void*>(pc), &found) == 0;
}

std::size_t slot_of(std::uintptr_t start) {
  return mix(0, start) % kKnownModules;
}

// Enters a module; false when the table is full. Two threads may enter the same module twice, which costs a slot.
bool enter(std::uintptr_t start, std::uint64_t identity) {
  constexpr std::size_t kProbes = 16;
  for (std::size_t i = 0; i < kProbes; ++i) {
    KnownModule& known = g_known[(slot_of(start) + i) % kKnownModules];
    std::uintptr_t there = known.start.load(std::memory_order_acquire);
    if (there == start && known.identity.load(std::memory_order_relaxed) == identity) return true;
    if (there != 0) continue;
    // The identity is written after the slot is taken: a sweep in between sees another one and drops the slot
    // again, which is safe (I1) and only costs the cache.
    if (!known.start.compare_exchange_strong(there, start, std::memory_order_acq_rel)) continue;
    known.identity.store(identity, std::memory_order_release);
    std::uint32_t end = g_known_end.load(std::memory_order_relaxed);
    const auto mine = static_cast<std::uint32_t>(&known - g_known + 1);
    while (end < mine && !g_known_end.compare_exchange_weak(end, mine)) {
    }
    return true;
  }
  return false;
}

// The readable bytes around `inside`: the loaded segment that holds it, as the program headers say. Of a module with
// gaps between its segments (node), the loader tells the one segment that holds what it was asked about.
ByteRange segment_around(const dl_find_object& found, const std::uint8_t* inside) {
  const auto* base = static_cast<const std::uint8_t*>(found.dlfo_map_start);
  const auto* end = static_cast<const std::uint8_t*>(found.dlfo_map_end);
  if (inside < base || inside >= end) {
    dl_find_object segment;
    const bool is_same_module =
        ask_loader(reinterpret_cast<std::uintptr_t>(inside), segment) && segment.dlfo_link_map == found.dlfo_link_map;
    if (!is_same_module) return {};
    return {static_cast<const std::uint8_t*>(segment.dlfo_map_start),
            static_cast<const std::uint8_t*>(segment.dlfo_map_end)};
  }
  if (end - base < static_cast<std::ptrdiff_t>(kPageSize)) return {};
  const auto* elf = reinterpret_cast<const Elf64_Ehdr*>(base);
  const bool has_headers = __builtin_memcmp(elf->e_ident, ELFMAG, SELFMAG) == 0 &&
                           elf->e_phentsize == sizeof(Elf64_Phdr) &&
                           elf->e_phoff + elf->e_phnum * sizeof(Elf64_Phdr) <= kPageSize;
  if (!has_headers)
    return {inside, round_down(reinterpret_cast<std::uintptr_t>(inside), kPageSize) + kPageSize <=
                            reinterpret_cast<std::uintptr_t>(end)
                        ? inside - (reinterpret_cast<std::uintptr_t>(inside) & (kPageSize - 1)) + kPageSize
                        : end};
  const auto* segment = reinterpret_cast<const Elf64_Phdr*>(base + elf->e_phoff);
  std::uintptr_t bias = 0;
  bool has_bias = false;
  for (unsigned i = 0; i < elf->e_phnum; ++i) {
    if (segment[i].p_type != PT_LOAD) continue;
    if (!has_bias) bias = reinterpret_cast<std::uintptr_t>(base) - round_down(segment[i].p_vaddr, kPageSize);
    has_bias = true;
    const auto* first = reinterpret_cast<const std::uint8_t*>(bias + segment[i].p_vaddr);
    if (first <= inside && inside < first + segment[i].p_filesz) return {first, first + segment[i].p_filesz};
  }
  return {};
}

// Whether the module entered as beginning at `start` is still the one it was. Asks about modules that no code of this
// thread stands in: another thread may be unmapping this one between the loader's answer and the look at its table, so
// the kernel does the looking. What cannot be read is gone.
bool is_still_there(std::uintptr_t start, std::uint64_t identity) {
  dl_find_object found;
  if (!ask_loader(start, found) || found.dlfo_eh_frame == nullptr) return false;
  TableHead head;
  return os::try_read_memory(AppAddr(found.dlfo_eh_frame), &head, sizeof head) &&
         identity_of(found, head) == identity;
}

bool learn_loader() {
  // What the kernel says: _dl_find_object and dlclose are exported by libc.so, so their addresses do not tell. 0 where
  // the loader was started as the program.
  const std::uintptr_t loader = getauxval(AT_BASE);
  dl_find_object found;
  if (loader == 0 || !ask_loader(loader, found)) return false;
  g_loader_start.store(reinterpret_cast<std::uintptr_t>(found.dlfo_map_start), std::memory_order_relaxed);
  g_loader_end.store(reinterpret_cast<std::uintptr_t>(found.dlfo_map_end), std::memory_order_release);
  return true;
}

}  // namespace

bool find_module(std::uintptr_t pc, CodeModule& module) {
  dl_find_object found;
  if (!ask_loader(pc, found) || found.dlfo_eh_frame == nullptr) return false;
  const auto* header = static_cast<const std::uint8_t*>(found.dlfo_eh_frame);
  module.start = reinterpret_cast<std::uintptr_t>(found.dlfo_map_start);
  module.end = reinterpret_cast<std::uintptr_t>(found.dlfo_map_end);
  module.header = {header, segment_around(found, header).end};
  if (module.header.end == nullptr) return false;
  const std::uint8_t* frame = eh_frame_of(module.header);
  module.frame = segment_around(found, frame);
  if (module.frame.begin == nullptr) return false;
  TableHead head;
  raw_copy(&head, header, sizeof head);
  module.is_known = enter(module.start, identity_of(found, head));
  return true;
}

bool is_loader_known() {
  return g_loader_end.load(std::memory_order_acquire) != 0 || learn_loader();
}

bool is_loader_code(std::uintptr_t pc) {
  return pc >= g_loader_start.load(std::memory_order_relaxed) && pc < g_loader_end.load(std::memory_order_relaxed);
}

void set_tls_freer(std::uintptr_t begin, std::size_t bytes) {
  g_tls_freer.store(begin, std::memory_order_relaxed);
  g_tls_freer_bytes.store(bytes, std::memory_order_relaxed);
}

void expect_thread_set_up(bool expected) {
  t_sets_up_thread = expected;
}

bool keeps_modules(std::uintptr_t pc) {
  return t_sets_up_thread ||
         pc - g_tls_freer.load(std::memory_order_relaxed) < g_tls_freer_bytes.load(std::memory_order_relaxed);
}

void revalidate_modules() {
  bool changed = false;
  const std::uint32_t end = g_known_end.load(std::memory_order_acquire);
  for (std::uint32_t i = 0; i < end; ++i) {
    std::uintptr_t start = g_known[i].start.load(std::memory_order_acquire);
    if (start == 0) continue;
    if (is_still_there(start, g_known[i].identity.load(std::memory_order_relaxed))) continue;
    if (g_known[i].start.compare_exchange_strong(start, 0)) changed = true;
  }
  if (!changed) return;
  g_epoch.fetch_add(1, std::memory_order_seq_cst);
  RuleCache::clear();
}

bool is_module_code(std::uintptr_t pc) {
  dl_find_object found;
  return ask_loader(pc, found);
}

std::uint32_t module_epoch() {
  return g_epoch.load(std::memory_order_seq_cst);
}

}  // namespace penumbra::stacks
