#include "instrument/load/system_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>

#include "instrument/load/exact.h"
#include "instrument/load/report_access.h"
#include "runtime/base/os_linux.h"
#include "runtime/base/system_calls.h"
#include "shadow/address_map.h"
#include "shadow/bytes.h"
#include "shadow/check.h"

namespace penumbra::load {
namespace {

constinit SigactionHook g_sigaction = nullptr;
constinit MappingHook g_mapping = nullptr;
constinit bool g_outputs_before = false;
constinit std::atomic<std::uint64_t> g_unknown_controls{0};

// Registers of the arguments, by encoding: rdi, rsi, rdx, r10, r8, r9 (x86-64 ABI, A.2.1).
constexpr unsigned kArguments[6] = {7, 6, 2, 10, 8, 9};
constexpr unsigned kRax = 0;

constexpr std::uint64_t kMostBytes = ~std::uint64_t{0} / 2;
constexpr std::size_t kWordSpan = 8 * shadow::kGranuleSize;

// What the call that is under way leaves for the routine behind it.
struct Note {
  std::uintptr_t stack = 0;
  std::int64_t number = -1;
  std::uint64_t room = 0;  // of an output whose length the kernel overwrites
};

constinit thread_local Note t_note;

// By general registers, eight shadow bytes at a time: buffers of system calls can be long.
std::uintptr_t first_bad_of(std::uintptr_t address, std::size_t size) {
  const std::uintptr_t end = address + size;
  const std::uintptr_t middle = std::min(round_up(address, kWordSpan), end);
  std::uintptr_t bad = middle > address ? first_bad_exactly(address, middle - address) : kAllFine;
  for (std::uintptr_t at = middle; bad == kAllFine && at < end; at += kWordSpan) {
    const bool is_whole = end - at >= kWordSpan;
    if (is_whole && shadow::load_block(AppAddr(at)) == 0) continue;
    bad = first_bad_exactly(at, is_whole ? kWordSpan : end - at);
  }
  return bad;
}

// Calls code that is not compiled for general registers only. Its vector code is SSE, which leaves upper halves alone.
template <class Function>
void keeping_vectors(Function function) {
  alignas(16) std::uint8_t vectors[512];
  asm volatile("fxsave64 %0" : "=m"(vectors));
  function();
  asm volatile("fxrstor64 %0" : : "m"(vectors));
}

bool is_readable(std::uintptr_t address, std::size_t size) {
  return shadow::has_shadow(AppAddr(address)) && os::is_readable(AppAddr(round_down(address, 4))) &&
         os::is_readable(AppAddr(round_down(address + size - 1, 4)));
}

template <class Object>
const Object& at(std::uint64_t address) {
  return *reinterpret_cast<const Object*>(address);
}

// One call at one instruction: its table entry, its registers, and where reports say it is.
class Call {
 public:
  Call(const SystemCall& shape, const Area& area, const SavedRegisters& saved, std::uintptr_t pc)
      : shape_(shape), area_(area), saved_(saved), pc_(pc) {}

  std::uint64_t argument(unsigned n) const { return saved_.value[kArguments[n]]; }

  void reads(std::uint64_t address, std::uint64_t bytes) const { range(address, bytes, false); }
  void writes(std::uint64_t address, std::uint64_t bytes) const { range(address, bytes, true); }

  // The kernel may not have read it where it failed.
  void text(std::uint64_t address, bool failed) const {
    if (address == 0 || !shadow::has_shadow(AppAddr(address))) return;
    for (std::uint64_t n = 0; n < PATH_MAX; ++n) {
      const std::uintptr_t here = address + n;
      if (failed && (n == 0 || here % kPageSize == 0) && !is_readable(here, 1)) return;
      if (first_bad_exactly(here, 1) != kAllFine) {
        report(address, n + 1, false, here);
        return;
      }
      if (at<volatile char>(here) == '\0') return;
    }
  }

  void vector(std::uint64_t vectors, std::uint64_t count, std::uint64_t bytes, bool is_write) const {
    if (vectors == 0 || count > IOV_MAX) return;
    reads(vectors, count * sizeof(iovec));
    for (std::uint64_t n = 0; n < count && bytes > 0; ++n) {
      const auto& one = at<iovec>(vectors + n * sizeof(iovec));
      const std::uint64_t here = std::min<std::uint64_t>(bytes, one.iov_len);
      range(reinterpret_cast<std::uintptr_t>(one.iov_base), here, is_write);
      bytes -= here;
    }
  }

  // `name_room`: what msg_namelen said before the call.
  void message(std::uint64_t address, std::uint64_t bytes, bool is_write, std::uint64_t name_room) const {
    range(address, sizeof(msghdr), is_write);
    const auto& header = at<msghdr>(address);
    if (header.msg_name != nullptr) {
      range(reinterpret_cast<std::uintptr_t>(header.msg_name), std::min<std::uint64_t>(name_room, header.msg_namelen),
            is_write);
    }
    range(reinterpret_cast<std::uintptr_t>(header.msg_control), header.msg_controllen, is_write);
    vector(reinterpret_cast<std::uintptr_t>(header.msg_iov), header.msg_iovlen, bytes, is_write);
  }

  void messages(std::uint64_t address, std::uint64_t count, bool is_write) const {
    for (std::uint64_t n = 0; n < count; ++n) {
      const std::uint64_t one = address + n * sizeof(mmsghdr);
      range(one, sizeof(mmsghdr), is_write);
      // The room for a received name is overwritten by its length, so names are left out.
      message(one, at<mmsghdr>(one).msg_len, is_write, is_write ? 0 : ~std::uint64_t{0});
    }
  }

  // The kernel found memory that is not there. In our span the shadow does not tell (memory ruling 1).
  void search(std::uint64_t address, std::uint64_t bytes, bool is_write) const {
    if (address == 0 || bytes == 0 || bytes > kMostBytes || !shadow::has_shadow(AppAddr(address))) return;
    AppAddr bad = shadow::kNoBadByte;
    if (shadow::meets_span(AppAddr(address), bytes)) {
      keeping_vectors([&] { bad = shadow::first_bad(AppAddr(address), bytes); });
    }
    if (bad != shadow::kNoBadByte) report(address, bytes, is_write, bad.value);
  }

 private:
  void range(std::uint64_t address, std::uint64_t bytes, bool is_write) const {
    if (address == 0 || bytes == 0 || bytes > kMostBytes || !shadow::has_shadow(AppAddr(address)) ||
        !shadow::has_shadow(AppAddr(address + bytes - 1)))
      return;
    const std::uintptr_t bad = first_bad_of(address, bytes);
    if (bad != kAllFine) report(address, bytes, is_write, bad);
  }

  void report(std::uint64_t address, std::uint64_t bytes, bool is_write, std::uintptr_t bad) const {
    if ((area_.file.header->options & (is_write ? kModuleChecksWrites : kModuleChecksReads)) == 0) return;
    report_access(state_of(area_, saved_), pc_, address, bytes, is_write, bad, shape_.name);
  }

  const SystemCall& shape_;
  const Area& area_;
  const SavedRegisters& saved_;
  std::uintptr_t pc_;
};

constexpr std::uint64_t kLockBytes = 32;  // struct flock

bool is_set_lock(std::uint64_t command) {
  return command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK || command == F_OFD_SETLKW;
}

bool is_get_lock(std::uint64_t command) {
  return command == F_GETLK || command == F_OFD_GETLK;
}

std::uint64_t set_bytes(std::uint64_t descriptors) {
  const auto count = static_cast<std::int32_t>(descriptors);
  return count <= 0 ? 0 : (static_cast<std::uint64_t>(count) + 63) / 64 * 8;
}

// The most that the kernel may touch behind a pointer, 0 where that has to be read first.
std::uint64_t most_bytes(const Call& call, const PointerArgument& p) {
  switch (p.kind) {
    case PointerKind::kIn:
    case PointerKind::kOut: return p.size;
    case PointerKind::kInSized:
    case PointerKind::kOutSized:
    case PointerKind::kOutResult: {
      std::uint64_t bytes;
      return __builtin_mul_overflow(call.argument(p.other), p.size, &bytes) ? 0 : bytes;
    }
    default: return 0;
  }
}

bool is_output(PointerKind kind) {
  return kind == PointerKind::kOut || kind == PointerKind::kOutSized || kind == PointerKind::kOutResult;
}

void check_before(const Call& call, const PointerArgument& p, Note& note) {
  const std::uint64_t pointer = call.argument(p.argument);
  switch (p.kind) {
    case PointerKind::kIn:
    case PointerKind::kInSized: call.reads(pointer, most_bytes(call, p)); break;
    case PointerKind::kControl: {
      const ControlShape control = control_shape(static_cast<std::uint32_t>(call.argument(p.other)));
      if (!control.known) g_unknown_controls.fetch_add(1, std::memory_order_relaxed);
      call.reads(pointer, control.in);
      break;
    }
    case PointerKind::kLock:
      if (is_set_lock(call.argument(p.other))) call.reads(pointer, kLockBytes);
      break;
    case PointerKind::kOutLength: {
      const std::uint64_t length = call.argument(p.other);
      note.room = 0;
      if (length == 0 || !is_readable(length, sizeof(socklen_t))) break;
      call.reads(length, sizeof(socklen_t));
      note.room = at<socklen_t>(length);
      break;
    }
    case PointerKind::kMessageOut:
      note.room = is_readable(pointer, sizeof(msghdr)) ? at<msghdr>(pointer).msg_namelen : 0;
      break;
    default:
      if (g_outputs_before && is_output(p.kind)) call.writes(pointer, most_bytes(call, p));
  }
}

void check_behind(const Call& call, const PointerArgument& p, std::int64_t result, const Note* note) {
  const std::uint64_t pointer = call.argument(p.argument);
  if (p.kind == PointerKind::kText) {
    if (result != -EFAULT) call.text(pointer, result < 0);
    return;
  }
  if (result < 0) return;
  const auto returned = static_cast<std::uint64_t>(result);
  switch (p.kind) {
    case PointerKind::kVectorIn:
    case PointerKind::kVectorOut:
      call.vector(pointer, call.argument(p.other), returned, p.kind == PointerKind::kVectorOut);
      break;
    case PointerKind::kMessageIn: call.message(pointer, returned, false, ~std::uint64_t{0}); break;
    case PointerKind::kMessageOut: call.message(pointer, returned, true, note != nullptr ? note->room : 0); break;
    case PointerKind::kMessagesIn:
    case PointerKind::kMessagesOut: call.messages(pointer, returned, p.kind == PointerKind::kMessagesOut); break;
    case PointerKind::kOut:
    case PointerKind::kOutSized: call.writes(pointer, most_bytes(call, p)); break;
    case PointerKind::kOutResult: call.writes(pointer, std::min(most_bytes(call, p), returned * p.size)); break;
    case PointerKind::kOutLength:
      if (pointer != 0 && call.argument(p.other) != 0 && note != nullptr) {
        call.writes(pointer, std::min<std::uint64_t>(note->room, at<socklen_t>(call.argument(p.other))));
      }
      break;
    case PointerKind::kSets:
      for (unsigned n = 0; n < 3; ++n) call.writes(call.argument(p.argument + n), set_bytes(call.argument(0)));
      break;
    case PointerKind::kControl:
      call.writes(pointer, control_shape(static_cast<std::uint32_t>(call.argument(p.other))).out);
      break;
    case PointerKind::kLock:
      if (is_get_lock(call.argument(p.other))) call.writes(pointer, kLockBytes);
      break;
    default: break;
  }
}

// The record of the instruction, and what it is about.
struct Place {
  const Area* area = nullptr;
  const ModuleAccess* access = nullptr;

  bool find(const SavedRegisters& saved) {
    area = area_of_code(saved.return_address);
    const ModuleCheck* const check = area == nullptr ? nullptr : check_at(*area, saved.return_address);
    if (check == nullptr) return false;
    access = &area->file.accesses()[check->first_access];
    return true;
  }
  std::uintptr_t pc() const { return area->text.begin.value + access->text_offset; }
};

bool is_mapping(const SystemCall& shape) {
  return shape.pointers[0].kind == PointerKind::kMapping;
}

// Makes a call in the program's stead, or not.
bool make_call(std::int64_t number, SavedRegisters& saved) {
  std::uint64_t arguments[6];
  for (unsigned n = 0; n < 6; ++n) arguments[n] = saved.value[kArguments[n]];
  std::int64_t result = 0;
  bool is_made = false;
  if (number == __NR_rt_sigaction) {
    if (g_sigaction == nullptr) return false;
    keeping_vectors([&] {
      result = g_sigaction(static_cast<int>(arguments[0]), reinterpret_cast<const void*>(arguments[1]),
                           reinterpret_cast<void*>(arguments[2]), arguments[3]);
    });
    is_made = true;
  } else {
    if (g_mapping == nullptr) return false;
    keeping_vectors([&] { is_made = g_mapping(number, arguments, &result); });
  }
  if (is_made) saved.value[kRax] = static_cast<std::uint64_t>(result);
  return is_made;
}

std::uintptr_t stack_of(const SavedRegisters& saved) {
  return reinterpret_cast<std::uintptr_t>(&saved.return_address);
}

}  // namespace

void before_system_call(SavedRegisters& saved) {
  Place place;
  if (!place.find(saved)) return;
  const auto number = static_cast<std::int64_t>(saved.value[kRax]);
  t_note = {stack_of(saved), number, 0};
  const SystemCall* const shape = find_system_call(number);
  if (shape == nullptr) return;
  const Call call(*shape, *place.area, saved, place.pc());
  for (const PointerArgument& p : shape->pointers) {
    if (p.kind != PointerKind::kNone) check_before(call, p, t_note);
  }
  if ((number != __NR_rt_sigaction && !is_mapping(*shape)) || !make_call(number, saved)) return;
  // To the routine behind the instruction, which finds the result as if the kernel had given it.
  saved.return_address += place.access->size;
}

void behind_system_call(SavedRegisters& saved) {
  Place place;
  if (!place.find(saved)) return;
  const Note note = t_note;
  const bool is_ours = note.stack == stack_of(saved);
  const std::int64_t number = place.access->displacement >= 0 ? place.access->displacement
                              : is_ours                       ? note.number
                                                              : -1;
  const SystemCall* const shape = find_system_call(number);
  if (shape == nullptr) return;
  const auto result = static_cast<std::int64_t>(saved.value[kRax]);
  // Nobody was waited for, and nothing is written.
  if (number == __NR_wait4 && result == 0) return;
  const Call call(*shape, *place.area, saved, place.pc());
  for (const PointerArgument& p : shape->pointers) {
    if (p.kind == PointerKind::kNone) continue;
    check_behind(call, p, result, is_ours ? &note : nullptr);
    if (result == -EFAULT) call.search(call.argument(p.argument), most_bytes(call, p), is_output(p.kind));
  }
}

void set_sigaction_hook(SigactionHook hook) {
  g_sigaction = hook;
}

void set_mapping_hook(MappingHook hook) {
  g_mapping = hook;
}

void check_outputs_before(bool wanted) {
  g_outputs_before = wanted;
}

std::uint64_t unknown_controls() {
  return g_unknown_controls.load(std::memory_order_relaxed);
}

}  // namespace penumbra::load
