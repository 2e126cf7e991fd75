// What happens when a check's fast path found something: the exact question, then a report.
//
// The functions called by the slots' routines use general registers only (this file is compiled so): the program's
// vector registers are still in place. They are saved around the report alone.
//
// zone: signal-safe

#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include "instrument/load/areas.h"
#include "instrument/load/exact.h"
#include "instrument/load/load.h"
#include "instrument/load/original_state.h"
#include "instrument/load/report_access.h"
#include "instrument/load/slots.h"
#include "instrument/load/special.h"
#include "instrument/load/system_calls.h"
#include "runtime/base/fault.h"
#include "runtime/base/locks.h"
#include "runtime/base/options.h"
#include "runtime/base/os_linux.h"
#include "runtime/base/thread_id.h"

extern "C" void penumbra_with_vectors(void (*function)(void*), void* argument, void* area);

namespace penumbra::load {
namespace {

// One report at a time holds the vector state; 16 KiB hold AVX-512 and AMX.
constexpr std::size_t kVectorBytes = 16384;
alignas(64) constinit std::uint8_t g_vectors[kVectorBytes];
constinit Mutex g_reporting;
constinit std::atomic<std::uint32_t> g_reporter{0};
constinit ucontext_t g_context{};

void raise(void* fault) {
  raise_fault(*static_cast<const Fault*>(fault));
}

// All but those that this thread's own instructions raise. Once sealed, the program's filter may kill for the call.
class SignalsBlocked {
 public:
  SignalsBlocked() : is_sealed_(os::is_sealed()) {
    const std::uint64_t wanted = ~(bit(SIGSEGV) | bit(SIGBUS) | bit(SIGILL) | bit(SIGFPE) | bit(SIGTRAP));
    change(SIG_BLOCK, &wanted, &old_);
  }
  ~SignalsBlocked() { change(SIG_SETMASK, &old_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  static constexpr std::uint64_t bit(int signal) { return std::uint64_t{1} << (signal - 1); }

  void change(int how, const std::uint64_t* set, std::uint64_t* old) const {
    if (is_sealed_) return;
    os::raw_syscall(SYS_rt_sigprocmask, how, reinterpret_cast<long>(set), reinterpret_cast<long>(old), sizeof *set);
  }

  bool is_sealed_;
  std::uint64_t old_ = 0;
};

// The order of gregs is the kernel's (asm/sigcontext.h); this is by encoding.
constexpr int kRegisterOrder[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                    REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

}  // namespace

void report_access(const OriginalState& state, std::uintptr_t pc, std::uintptr_t address, std::size_t size,
                   bool is_write, std::uintptr_t bad, const char* function) {
  const std::uint32_t self = current_tid();
  if (g_reporter.load(std::memory_order_relaxed) == self) return;  // a check inside a report of this thread
  // A handler that leaves by longjmp would take the lock along.
  const SignalsBlocked no_handlers;
  LockGuard guard(g_reporting);
  g_reporter.store(self, std::memory_order_relaxed);
  for (unsigned r = 0; r < 16; ++r)
    g_context.uc_mcontext.gregs[kRegisterOrder[r]] = static_cast<greg_t>(state.value[r]);
  g_context.uc_mcontext.gregs[REG_RIP] = static_cast<greg_t>(pc);
  g_context.uc_mcontext.gregs[REG_EFL] = static_cast<greg_t>(state.flags);
  Fault fault;
  fault.kind = FaultKind::kBadAccess;
  fault.is_write = is_write;
  fault.addr = AppAddr(address);
  fault.size = size;
  fault.bad = AppAddr(bad);
  fault.function = function;
  fault.context = {pc, state.value[4], state.value[5]};
  fault.ucontext = &g_context;
  penumbra_with_vectors(raise, &fault, g_vectors);
  g_reporter.store(0, std::memory_order_relaxed);
}

void fork_child() {
  g_reporting.reset_after_fork();
  g_reporter.store(0, std::memory_order_relaxed);
}

const ModuleCheck* check_at(const Area& area, std::uintptr_t return_address) {
  const Records<ModuleCheck> checks = area.file.checks();
  const std::uint32_t wanted = area.code_offset(return_address);
  std::size_t low = 0;
  std::size_t high = checks.count;
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (checks[middle].return_offset < wanted) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < checks.count && checks[low].return_offset == wanted ? &checks[low] : nullptr;
}

namespace {

// The moved copy of the instruction that the check at a return address stands before: behind the last of its checks.
const std::uint8_t* moved_instruction(const Area& area, std::uintptr_t return_address) {
  const Records<ModulePlace> places = area.file.places();
  std::size_t n = place_at(area, return_address);
  while (n + 1 < places.count && places[n + 1].text_offset == places[n].text_offset) ++n;
  return reinterpret_cast<const std::uint8_t*>(area.code.begin.value + places[n].code_offset);
}

}  // namespace

// The registers as they were when the routine was called, rsp behind its return.
OriginalState state_of(const Area& area, const SavedRegisters& saved) {
  std::uint64_t value[16];
  for (unsigned r = 0; r < 16; ++r) value[r] = saved.value[r];
  value[4] = reinterpret_cast<std::uintptr_t>(&saved.return_address) + sizeof saved.return_address;
  // The call itself still belongs to the state before it.
  return original_state(area, saved.return_address - 1, value, saved.flags);
}

namespace {

bool is_allowed_over_read(std::uintptr_t address, std::size_t size, bool is_write) {
  return !process_options().strict_loads && is_deliberate_over_read(address, size, is_write);
}

}  // namespace
}  // namespace penumbra::load

using namespace penumbra;
using namespace penumbra::load;

int penumbra_span_is_fine(std::uintptr_t address, std::size_t span) {
  return first_bad_exactly(address, span) == kAllFine ? 1 : 0;
}

void penumbra_check_failed(const SavedRegisters* saved) {
  const Area* area = area_of_code(saved->return_address);
  if (area == nullptr) return;
  const ModuleCheck* check = check_at(*area, saved->return_address);
  if (check == nullptr) return;
  const Records<ModuleAccess> accesses = area->file.accesses();
  for (std::uint32_t n = 0; n < check->access_count; ++n) {
    const ModuleAccess& access = accesses[check->first_access + n];
    const std::uintptr_t address =
        saved->address + static_cast<std::uintptr_t>(std::int64_t{access.displacement} - check->low);
    const std::uintptr_t bad = first_bad_exactly(address, access.size);
    if (bad == kAllFine || is_allowed_over_read(address, access.size, access.is_write != 0)) continue;
    report_access(state_of(*area, *saved), area->text.begin.value + access.text_offset, address, access.size,
                  access.is_write != 0, bad);
  }
}

void penumbra_special_check(SavedRegisters* saved) {
  if (saved->span == kCallsBefore) return before_system_call(*saved);
  if (saved->span == kCallsBehind) return behind_system_call(*saved);
  const Area* area = area_of_code(saved->return_address);
  if (area == nullptr) return;
  const ModuleCheck* check = check_at(*area, saved->return_address);
  if (check == nullptr) return;
  const ModuleAccess& access = area->file.accesses()[check->first_access];
  const OriginalState state = state_of(*area, *saved);
  BadRange range;
  if (!find_bad_special(*check, access, state, moved_instruction(*area, saved->return_address), range)) return;
  report_access(state, area->text.begin.value + access.text_offset, range.address, range.size, access.is_write != 0,
                range.bad);
}
