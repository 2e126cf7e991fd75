#include "instrument/load/load.h"

#include <elf.h>
#include <errno.h>
#include <link.h>
#include <sys/mman.h>

#include "instrument/load/areas.h"
#include "instrument/load/loaded_modules.h"
#include "instrument/load/loader_hook.h"
#include "instrument/load/patch.h"
#include "instrument/rewriter_revision.h"
#include "runtime/base/content_key.h"
#include "runtime/base/never_rewritten.h"
#include "runtime/base/os_linux.h"
#include "runtime/base/os_process.h"
#include "runtime/base/raw_memory.h"
#include "runtime/base/text_buffer.h"

namespace penumbra::load {
namespace {

constexpr std::size_t kMaxModules = 4096;  // known at one time; more run unrewritten
constexpr std::size_t kMostAsked = 64;     // files that one event asks for

// A loaded module, with or without an area. Link maps are reused: base and dynamic section tell two users apart, should
// an event have been missed.
struct Known {
  const link_map* map = nullptr;
  std::uintptr_t base = 0;
  const void* dynamic = nullptr;
  const Area* area = nullptr;
  bool is_there = false;
  bool is_new = true;  // nobody has been told of it

  bool is(const LoadedModule& module) const {
    return map == module.map && base == module.base && dynamic == module.map->l_ld;
  }
};

constinit Known g_known[kMaxModules];
constinit std::size_t g_known_count = 0;
constinit LoadCounts g_counts;
constinit char g_cache[kMaxPath] = {};
constinit char g_executable[kMaxPath] = {};
constinit decltype(Settings::prepare) g_prepare = nullptr;
constinit decltype(Settings::arrived) g_arrived = nullptr;
constinit decltype(Settings::append_key) g_append_key = nullptr;
constinit bool g_keeps_text = false;

// The build-id in hexadecimal from the module's notes in memory; false without one.
bool find_build_id(const LoadedModule& module, TextBuffer& identity) {
  for (const ElfW(Phdr) & header : headers_of(module)) {
    if (header.p_type != PT_NOTE) continue;
    const std::uintptr_t begin = module.base + header.p_vaddr;
    for (std::uintptr_t at = begin; at + sizeof(ElfW(Nhdr)) <= begin + header.p_memsz;) {
      const auto* note = reinterpret_cast<const ElfW(Nhdr)*>(at);
      const std::uintptr_t name = at + sizeof *note;
      const std::uintptr_t description = name + round_up(note->n_namesz, 4);
      if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 &&
          raw_compare(reinterpret_cast<const void*>(name), "GNU", 4) == 0) {
        for (unsigned b = 0; b < note->n_descsz; ++b) {
          identity.hex_padded(*reinterpret_cast<const std::uint8_t*>(description + b), 2);
        }
        return true;
      }
      at = description + round_up(note->n_descsz, 4);
    }
  }
  return false;
}

// What the launcher calls the module's file; false where the module's headers are not to be had. The module is as it was mapped:
// nothing of ours has been written to it yet.
bool find_identity(const LoadedModule& module, TextBuffer& identity) {
  if (find_build_id(module, identity)) return true;
  const ProgramHeaders headers = headers_of(module);
  if (headers.count == 0) return false;
  ContentKey key;
  for (const ElfW(Phdr) & header : headers) {
    if (!ContentKey::covers(header)) continue;
    key.add(header.p_vaddr, reinterpret_cast<const std::uint8_t*>(module.base + header.p_vaddr),
            ContentKey::bytes_of(header));
  }
  identity.append(key.text().characters);
  return true;
}

enum class Outcome : std::uint8_t { kRewritten, kMissing, kUnknown, kRefused };

// Area and patches for one module; `known.area` is set on kRewritten only.
Outcome rewrite(const LoadedModule& module, Known& known) {
  FixedTextBuffer<80> identity;
  if (!find_identity(module, identity)) return Outcome::kUnknown;
  FixedTextBuffer<kMaxPath> path;
  path.append(g_cache).append("/").append(identity.c_str());
  if (module.is_main) os::executable_path(g_executable, sizeof g_executable);
  if (g_append_key != nullptr) g_append_key(path, module.is_main ? g_executable : module.path);
  path.append(PENUMBRA_MODULE_SUFFIX);
  if (path.lost() != 0) return Outcome::kUnknown;
  Area area;
  switch (map_module(path.c_str(), identity.c_str(), area.file)) {
    case MapVerdict::kMapped: break;
    case MapVerdict::kAbsent: return Outcome::kMissing;
    case MapVerdict::kDamaged:  // by a full disk or a crash; whoever looks for it next finds it missing, and makes it
      os::remove_file(path.c_str()).ignore();
      return Outcome::kMissing;
    default: return Outcome::kRefused;
  }
  if (area.file.header->code_bytes == 0) {  // a module without code, as libdl.so.2 is now: nothing to place or patch
    close_file(area.file);
    unmap_module(area.file);
    return Outcome::kRewritten;
  }
  const bool is_made = make_area(area, module.base);
  const Area* const published = is_made ? publish(area) : nullptr;
  if (published == nullptr) {
    if (is_made) unmap_area(area);
    close_file(area.file);
    unmap_module(area.file);
    return Outcome::kRefused;
  }
  const os::Result patched = patch_module(*published, g_keeps_text ? -1 : area.file.fd);
  close_file(area.file);
  if (!patched.ok()) {
    if (g_counts.code_is_fixed == 0) g_counts.code_is_fixed = patched.error();
    release(published);
    return Outcome::kRefused;
  }
  known.area = published;
  return Outcome::kRewritten;
}

// On a page of our own.
os::Result try_to_write_code() {
  const AppAddr page(round_down(reinterpret_cast<std::uintptr_t>(&start), kPageSize));
  const os::Result opened = os::protect(page, kPageSize, PROT_READ | PROT_WRITE | PROT_EXEC);
  os::protect(page, kPageSize, PROT_READ | PROT_EXEC).ignore();
  return opened;
}

bool is_cache_trusted() {
  const os::Result folder = os::open_read(g_cache);
  if (!folder.ok()) return false;
  const bool trusted = os::is_ours_alone(static_cast<int>(folder.value()));
  os::close(static_cast<int>(folder.value())).ignore();
  return trusted;
}

// What is missing and can be asked for, of one comparison. Not on the stack: dlopen is called on small ones, and the
// loader's lock keeps others out.
struct Asked {
  LoadedModule module;
  std::size_t known = 0;  // index into g_known
};

constinit Asked g_asked[kMostAsked];
constinit std::size_t g_asked_count = 0;

// Where a module is known; g_known_count where it is not. Both lists are in the loader's order, so that the search, which
// begins behind the last hit, ends at once as a rule.
std::size_t find_known(const LoadedModule& module, std::size_t& expected) {
  for (std::size_t step = 0; step < g_known_count; ++step) {
    const std::size_t n = (expected + step) % g_known_count;
    if (!g_known[n].is(module)) continue;
    expected = n + 1;
    return n;
  }
  return g_known_count;
}

void count(Outcome outcome) {
  switch (outcome) {
    case Outcome::kRewritten: ++g_counts.rewritten; break;
    case Outcome::kMissing:
    case Outcome::kUnknown: ++g_counts.missing; break;
    case Outcome::kRefused: ++g_counts.refused; break;
  }
}

struct Arrivals {
  std::size_t expected = 0;
  bool is_cache_trusted = false;
};

void welcome_new(const LoadedModule& module, void* cookie) {
  auto& arrivals = *static_cast<Arrivals*>(cookie);
  if (find_known(module, arrivals.expected) != g_known_count || g_known_count == kMaxModules) return;
  const std::size_t n = g_known_count++;
  g_known[n] = {module.map, module.base, module.map->l_ld, nullptr, true};
  if (is_never_rewritten(module.path)) return;
  ++g_counts.modules;
  const Outcome outcome = arrivals.is_cache_trusted ? rewrite(module, g_known[n]) : Outcome::kMissing;
  if (outcome == Outcome::kMissing && g_prepare != nullptr && g_asked_count < kMostAsked) {
    g_asked[g_asked_count++] = {module, n};
  } else {
    count(outcome);
  }
}

void ask_for_missing() {
  if (g_asked_count == 0) return;
  const char* files[kMostAsked];
  for (std::size_t n = 0; n < g_asked_count; ++n) {
    files[n] = g_asked[n].module.path;
    if (!g_asked[n].module.is_main) continue;
    files[n] = g_executable;
  }
  const bool look_again = g_prepare(g_cache, files, g_asked_count) && is_cache_trusted();
  for (std::size_t n = 0; n < g_asked_count; ++n) {
    count(look_again ? rewrite(g_asked[n].module, g_known[g_asked[n].known]) : Outcome::kMissing);
  }
  g_asked_count = 0;
}

void mark_known(const LoadedModule& module, void* expected) {
  const std::size_t n = find_known(module, *static_cast<std::size_t*>(expected));
  if (n != g_known_count) g_known[n].is_there = true;
}

// Keeps the order of those that stay.
void forget_gone() {
  std::size_t kept = 0;
  for (std::size_t n = 0; n < g_known_count; ++n) {
    if (g_known[n].is_there) {
      g_known[kept++] = g_known[n];
    } else if (g_known[n].area != nullptr) {
      release(g_known[n].area);
      ++g_counts.released;
    }
  }
  g_known_count = kept;
}

void tell_of_new(const LoadedModule& module, void* expected) {
  const std::size_t n = find_known(module, *static_cast<std::size_t*>(expected));
  if (n == g_known_count || !g_known[n].is_new) return;
  g_known[n].is_new = false;
  g_arrived(module);
}

void follow_loader() {
  for (std::size_t n = 0; n < g_known_count; ++n) g_known[n].is_there = false;
  std::size_t expected = 0;
  for_each_loaded_module(mark_known, &expected);
  forget_gone();
  Arrivals arrivals{0, is_cache_trusted()};
  for_each_loaded_module(welcome_new, &arrivals);
  ask_for_missing();
  expected = 0;
  if (g_arrived != nullptr) for_each_loaded_module(tell_of_new, &expected);
}

}  // namespace

LoadCounts start(const Settings& settings) {
  release_room();
  TextBuffer cache(g_cache, sizeof g_cache);
  cache.append(settings.cache).c_str();
  g_prepare = settings.prepare;
  g_arrived = settings.arrived;
  g_append_key = settings.append_key;
  g_keeps_text = settings.keeps_text;
  if (cache.lost() != 0 || cache.size() == 0) return g_counts;
  // Modules whose text comes patched from their file need no writable code, but libc's entries do: all or nothing.
  const os::Result writable = try_to_write_code();
  if (!writable.ok()) {
    g_counts.code_is_fixed = writable.error();
    return g_counts;
  }
  follow_loader();
  if (g_counts.code_is_fixed == 0) g_counts.follows_loader = hook_loader(follow_loader);
  return g_counts;
}

LoadCounts counts() {
  return g_counts;
}

}  // namespace penumbra::load
