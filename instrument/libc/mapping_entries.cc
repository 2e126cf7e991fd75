// mmap and the other calls that give, move and take address space: stale shadow goes with it, and Penumbra's own
// memory stays.
//
// Memory ruling 3. Poison that a compiled program left on a mapping (stack frames, globals, its own poisoning) would
// be met by the next owner of the addresses: it is cleared when they are given back, while they are still the
// program's, and once more when they are given out, for what was unmapped where nobody saw it. Of rewritten code every
// `syscall` instruction is seen, libc's own and the program's; else the calls by name.
//
// Calls that would hit our own ranges fail, with one line:
//
//     mmap, mremap to a fixed place     EEXIST   as MAP_FIXED_NOREPLACE says it
//     munmap, mremap of old memory      EINVAL   no mapping of the program is there
//     mprotect                          EACCES   except on memory that is the program's own (below)
//
// The stack of a thread is the program's own as well, though it lies in our span: a JVM maps its guard zones there.
//
// A heap block lies in our span, and programs do change the protection of memory from posix_memalign: mprotect passes
// where every byte is the program's by the shadow, or where reading and writing stay allowed.
//
// zone: signal-safe (dlclose: nomalloc)
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "instrument/libc/entry.h"
#include "instrument/libc/guarded_calls.h"
#include "instrument/libc/init.h"
#include "instrument/libc/kernel_io.h"
#include "instrument/libc/locking.h"
#include "runtime/base/os_linux.h"
#include "runtime/base/own_ranges.h"
#include "shadow/address_map.h"
#include "shadow/poison.h"

namespace penumbra::libc {
namespace {

using Size = std::size_t;

// The pages that [at, at+bytes) lies in; empty where the kernel would not look at them.
AppRange pages(const void* at, Size bytes) {
  const AppAddr begin(at);
  const Size whole = round_up(bytes, kPageSize);
  if ((begin.value & (kPageSize - 1)) != 0 || whole < bytes || begin.value + whole < begin.value)
    return {begin, begin};
  return {begin, begin + whole};
}

bool hits_ours(AppRange range) {
  return state.is_host && range.bytes() != 0 && own_ranges::overlaps(range);
}

// Part of the stack of one of the program's threads, which lies in our span: the program's to map and to protect.
bool is_thread_stack(AppRange range) {
  return state.threads.changes_stack != nullptr && state.threads.changes_stack(range);
}

int refuse(const char* what, AppRange range, int error) {
  FixedTextBuffer<256> line;
  line.append("penumbra: refused ")
      .append(what)
      .append(" of ")
      .hex(range.begin.value)
      .append("-")
      .hex(range.end.value);
  line.append(": Penumbra's own memory lies there");
  state.say(line);
  errno = error;
  return -1;
}

void forget(AppRange range) {
  if (state.is_host && range.bytes() != 0) shadow::clear_stale(range.begin, range.bytes());
}

// A new mapping of the program: without stale shadow, locked under MCL_FUTURE. False: the lock was refused.
bool welcome(AppRange range, int prot) {
  forget(range);
  return !state.is_host || lock_new_mapping(range, prot);
}

// Segments that are attached, so that shmdt knows how long they are. What finds no room here keeps its shadow until
// the addresses are mapped again.
struct Attachment {
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<Size> bytes{0};
};
constinit Attachment g_attachments[64];

void remember_attachment(const void* at, Size bytes) {
  for (Attachment& slot : g_attachments) {
    std::uintptr_t free = 0;
    if (!slot.begin.compare_exchange_strong(free, reinterpret_cast<std::uintptr_t>(at))) continue;
    slot.bytes.store(bytes, std::memory_order_release);
    return;
  }
}

// Its length, 0 where it is not known.
Size forget_attachment(const void* at) {
  for (Attachment& slot : g_attachments) {
    if (slot.begin.load(std::memory_order_acquire) != reinterpret_cast<std::uintptr_t>(at)) continue;
    const Size bytes = slot.bytes.exchange(0);
    slot.begin.store(0, std::memory_order_release);
    return bytes;
  }
  return 0;
}

// Where the loaded modules lie, as far as there is room for them.
struct Modules {
  static constexpr Size kMost = 256;
  Size count = 0;
  AppRange ranges[kMost];

  void list() {
    count = 0;
    dl_iterate_phdr(
        [](dl_phdr_info* info, Size, void* self) {
          auto& modules = *static_cast<Modules*>(self);
          if (modules.count == kMost) return 1;
          std::uintptr_t begin = UINTPTR_MAX;
          std::uintptr_t end = 0;
          for (unsigned i = 0; i < info->dlpi_phnum; ++i) {
            const ElfW(Phdr)& segment = info->dlpi_phdr[i];
            if (segment.p_type != PT_LOAD) continue;
            begin = std::min(begin, info->dlpi_addr + round_down(segment.p_vaddr, kPageSize));
            end = std::max(end, info->dlpi_addr + round_up(segment.p_vaddr + segment.p_memsz, kPageSize));
          }
          if (begin < end) modules.ranges[modules.count++] = {AppAddr(begin), AppAddr(end)};
          return 0;
        },
        this);
  }

  bool has(AppRange range) const {
    for (Size i = 0; i < count; ++i) {
      if (ranges[i].begin == range.begin) return true;
    }
    return false;
  }
};

// The break moved: what it gave up, or took, is without stale shadow.
void break_moved(AppAddr from, AppAddr to) {
  const AppRange moved{std::min(from, to), std::max(from, to)};
  forget(moved);
  if (to > from) lock_new_mapping(moved, PROT_READ | PROT_WRITE);
}

bool may_protect(AppRange range, int prot) {
  constexpr int kBoth = PROT_READ | PROT_WRITE;
  if (!hits_ours(range)) return true;
  if (!shadow::has_shadow(range.begin)) return false;
  if (is_thread_stack(range)) return true;
  return (prot & kBoth) == kBoth || shadow::is_accessible(range.begin, range.bytes());
}

}  // namespace

PENUMBRA_LIBC_DECLARE(void*, mmap, (void* at, Size bytes, int prot, int flags, int fd, off_t offset))
PENUMBRA_LIBC_DECLARE(void*, mmap64, (void* at, Size bytes, int prot, int flags, int fd, off_t offset))
PENUMBRA_LIBC_DECLARE(int, munmap, (void* at, Size bytes))
PENUMBRA_LIBC_DECLARE(int, mprotect, (void* at, Size bytes, int prot))
PENUMBRA_LIBC_DECLARE(int, pkey_mprotect, (void* at, Size bytes, int prot, int key))
PENUMBRA_LIBC_DECLARE(void*, mremap, (void* old, Size old_bytes, Size bytes, int flags, void* to))
PENUMBRA_LIBC_DECLARE(int, brk, (void* to))
PENUMBRA_LIBC_DECLARE(void*, sbrk, (std::intptr_t bytes))
PENUMBRA_LIBC_DECLARE(void*, shmat, (int id, const void* at, int flags))
PENUMBRA_LIBC_DECLARE(int, shmdt, (const void* at))
PENUMBRA_LIBC_DECLARE(int, dlclose, (void* handle))

namespace {

// Who makes the calls that were judged: libc, or the kernel where an instruction of rewritten code asked for them.
struct LibcCalls {
  static void* mmap(void* at, Size bytes, int prot, int flags, int fd, off_t offset) {
    return real_mmap(at, bytes, prot, flags, fd, offset);
  }
  static int munmap(void* at, Size bytes) { return real_munmap(at, bytes); }
  static int mprotect(void* at, Size bytes, int prot) { return real_mprotect(at, bytes, prot); }
  static void* mremap(void* old, Size old_bytes, Size bytes, int flags, void* to) {
    return real_mremap(old, old_bytes, bytes, flags, to);
  }
};

struct KernelCalls {
  static long word(const void* p) { return reinterpret_cast<long>(p); }
  static long word(Size bytes) { return static_cast<long>(bytes); }
  static long word(int flags) { return flags; }
  static long word(off_t offset) { return offset; }
  template <class... Arguments>
  static long make(long number, Arguments... arguments) {
    const long result = os::raw_syscall(number, word(arguments)...);
    if (result >= 0 || result < -4095) return result;
    errno = static_cast<int>(-result);
    return -1;
  }
  static void* mmap(void* at, Size bytes, int prot, int flags, int fd, off_t offset) {
    return reinterpret_cast<void*>(make(SYS_mmap, at, bytes, prot, flags, fd, offset));
  }
  static int munmap(void* at, Size bytes) { return static_cast<int>(make(SYS_munmap, at, bytes)); }
  static int mprotect(void* at, Size bytes, int prot) {
    return static_cast<int>(make(SYS_mprotect, at, bytes, prot));
  }
  static void* mremap(void* old, Size old_bytes, Size bytes, int flags, void* to) {
    return reinterpret_cast<void*>(make(SYS_mremap, old, old_bytes, bytes, flags, to));
  }
};

template <class Calls>
void* mmap_by(void* at, Size bytes, int prot, int flags, int fd, off_t offset) {
  const bool replaces = (flags & MAP_FIXED) != 0 && (flags & MAP_FIXED_NOREPLACE) != MAP_FIXED_NOREPLACE;
  if (replaces && hits_ours(pages(at, bytes)) && !is_thread_stack(pages(at, bytes))) {
    refuse("mmap", pages(at, bytes), EEXIST);
    return MAP_FAILED;
  }
  void* const mapped = Calls::mmap(at, bytes, prot, flags, fd, offset);
  if (mapped == MAP_FAILED || welcome(pages(mapped, bytes), prot)) return mapped;
  Calls::munmap(mapped, bytes);
  errno = EAGAIN;
  return MAP_FAILED;
}

template <class Calls>
int mprotect_by(void* at, Size bytes, int prot) {
  if (!may_protect(pages(at, bytes), prot)) return refuse("mprotect", pages(at, bytes), EACCES);
  return Calls::mprotect(at, bytes, prot);
}

template <class Calls>
void* mremap_by(void* old, Size old_bytes, Size bytes, int flags, void* to) {
  const AppRange from = pages(old, old_bytes);
  const AppRange fixed = (flags & MREMAP_FIXED) != 0 ? pages(to, bytes) : AppRange{};
  if (hits_ours(from)) {
    refuse("mremap", from, EINVAL);
    return MAP_FAILED;
  }
  if (hits_ours(fixed)) {
    refuse("mremap", fixed, EEXIST);
    return MAP_FAILED;
  }
  void* const mapped = Calls::mremap(old, old_bytes, bytes, flags, to);
  if (mapped == MAP_FAILED || !state.is_host) return mapped;
  const AppRange now = pages(mapped, bytes);
  // What stayed where it was keeps its shadow; a moved mapping takes none along. (Its lock the kernel takes along.)
  if (mapped != old) {
    if ((flags & MREMAP_DONTUNMAP) == 0) forget(from);
    forget(now);
  } else if (now.end < from.end) {
    forget({now.end, from.end});
  } else {
    forget({from.end, now.end});
  }
  return mapped;
}

// What unmapping part of a thread's stack comes to: the program will not touch it again, and nothing else may come to lie
// inside the span.
template <class Calls>
int seal_stack_by(AppRange range) {
  forget(range);
  constexpr int kNothing = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  void* const at = reinterpret_cast<void*>(range.begin.value);
  return Calls::mmap(at, range.bytes(), PROT_NONE, kNothing, -1, 0) == MAP_FAILED ? -1 : 0;
}

// As the kernel does it: the new break, or the old one where it could not be moved.
std::uint64_t brk_by_kernel(std::uint64_t to) {
  const auto before = static_cast<std::uint64_t>(os::raw_syscall(SYS_brk, 0));
  const auto now = static_cast<std::uint64_t>(os::raw_syscall(SYS_brk, static_cast<long>(to)));
  if (now != before) break_moved(AppAddr(before), AppAddr(now));
  return now;
}

}  // namespace

namespace guarded {

void* mmap(void* at, Size bytes, int prot, int flags, int fd, off_t offset) {
  if (real_mmap.checks_itself) return real_mmap(at, bytes, prot, flags, fd, offset);
  return mmap_by<LibcCalls>(at, bytes, prot, flags, fd, offset);
}

int munmap(void* at, Size bytes) {
  if (real_munmap.checks_itself) return real_munmap(at, bytes);
  const AppRange range = pages(at, bytes);
  if (hits_ours(range))
    return is_thread_stack(range) ? seal_stack_by<LibcCalls>(range) : refuse("munmap", range, EINVAL);
  forget(range);
  return real_munmap(at, bytes);
}

int mprotect(void* at, Size bytes, int prot) {
  if (real_mprotect.checks_itself) return real_mprotect(at, bytes, prot);
  return mprotect_by<LibcCalls>(at, bytes, prot);
}

void* mremap(void* old, Size old_bytes, Size bytes, int flags, void* to) {
  if (real_mremap.checks_itself) return real_mremap(old, old_bytes, bytes, flags, to);
  return mremap_by<LibcCalls>(old, old_bytes, bytes, flags, to);
}

}  // namespace guarded

// munmap is left to the instruction, since its memory may be the very stack; only what the kernel must not do is done here.
bool on_mapping_call(std::int64_t number, const std::uint64_t* arguments, std::int64_t* result) {
  const int error = errno;
  errno = 0;
  bool is_made = true;
  void* const at = reinterpret_cast<void*>(arguments[0]);
  const Size bytes = arguments[1];
  switch (number) {
    case SYS_mmap:
      *result = reinterpret_cast<std::int64_t>(
          mmap_by<KernelCalls>(at, bytes, static_cast<int>(arguments[2]), static_cast<int>(arguments[3]),
                               static_cast<int>(arguments[4]), static_cast<off_t>(arguments[5])));
      break;
    case SYS_mprotect: *result = mprotect_by<KernelCalls>(at, bytes, static_cast<int>(arguments[2])); break;
    case SYS_mremap:
      *result = reinterpret_cast<std::int64_t>(mremap_by<KernelCalls>(
          at, bytes, arguments[2], static_cast<int>(arguments[3]), reinterpret_cast<void*>(arguments[4])));
      break;
    case SYS_brk: *result = static_cast<std::int64_t>(brk_by_kernel(arguments[0])); break;
    default: {
      const AppRange range = pages(at, bytes);
      if (!hits_ours(range)) {
        forget(range);
        is_made = false;
      } else if (!is_thread_stack(range)) {
        *result = refuse("munmap", range, EINVAL);
      } else {
        // A thread that unmaps the stack it stands on will end; that one is left as it is.
        const bool is_in_use = range.contains(AppAddr(__builtin_frame_address(0)));
        *result = is_in_use ? 0 : seal_stack_by<KernelCalls>(range);
      }
    }
  }
  if (is_made && number != SYS_brk && *result == -1) *result = -errno;
  errno = error;
  return is_made;
}

void* entry_mmap(void* at, Size bytes, int prot, int flags, int fd, off_t offset) {
  return guarded::mmap(at, bytes, prot, flags, fd, offset);
}

void* entry_mmap64(void* at, Size bytes, int prot, int flags, int fd, off_t offset) {
  return guarded::mmap(at, bytes, prot, flags, fd, offset);
}

int entry_munmap(void* at, Size bytes) {
  return guarded::munmap(at, bytes);
}

int entry_mprotect(void* at, Size bytes, int prot) {
  return guarded::mprotect(at, bytes, prot);
}

int entry_pkey_mprotect(void* at, Size bytes, int prot, int key) {
  const AppRange range = pages(at, bytes);
  if (!may_protect(range, prot)) return refuse("pkey_mprotect", range, EACCES);
  return real_pkey_mprotect(at, bytes, prot, key);
}

void* entry_mremap(void* old, Size old_bytes, Size bytes, int flags, void* to) {
  return guarded::mremap(old, old_bytes, bytes, flags, to);
}

int entry_brk(void* to) {
  if (!state.is_host || real_brk.checks_itself) return real_brk(to);
  const AppAddr before(real_sbrk(0));
  const int result = real_brk(to);
  if (result == 0) break_moved(before, AppAddr(to));
  return result;
}

void* entry_sbrk(std::intptr_t bytes) {
  void* const before = real_sbrk(bytes);
  if (state.is_host && !real_sbrk.checks_itself && bytes != 0 && before != reinterpret_cast<void*>(-1)) {
    break_moved(AppAddr(before), AppAddr(reinterpret_cast<std::uintptr_t>(before) + static_cast<Size>(bytes)));
  }
  return before;
}

void* entry_shmat(int id, const void* at, int flags) {
  shmid_ds segment{};
  const bool known = state.is_host && shmctl(id, IPC_STAT, &segment) == 0;
  if (known && (flags & SHM_REMAP) != 0 && hits_ours(pages(at, segment.shm_segsz))) {
    refuse("shmat", pages(at, segment.shm_segsz), EEXIST);
    return reinterpret_cast<void*>(-1);
  }
  void* const attached = real_shmat(id, at, flags);
  if (known && attached != reinterpret_cast<void*>(-1)) {
    welcome(pages(attached, segment.shm_segsz), PROT_READ);
    remember_attachment(attached, segment.shm_segsz);
  }
  return attached;
}

int entry_shmdt(const void* at) {
  if (state.is_host) forget(pages(at, forget_attachment(at)));
  return real_shmdt(at);
}

// A module takes its dependencies along, or stays because somebody else uses it: what is gone is seen by comparing.
int entry_dlclose(void* handle) {
  if (!state.is_host) return real_dlclose(handle);
  if (state.before_dlclose != nullptr) state.before_dlclose();
  Modules before;
  before.list();
  const int result = real_dlclose(handle);
  Modules after;
  after.list();
  if (after.count == Modules::kMost) return result;
  for (Size i = 0; i < before.count; ++i) {
    if (!after.has(before.ranges[i])) forget(before.ranges[i]);
  }
  return result;
}

}  // namespace penumbra::libc
