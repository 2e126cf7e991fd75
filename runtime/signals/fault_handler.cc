#include "runtime/signals/fault_handler.h"

#include <errno.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include "instrument/load/interrupted.h"
#include "runtime/base/options.h"
#include "runtime/base/os_process.h"
#include "runtime/report/report.h"
#include "runtime/signals/dispositions.h"
#include "runtime/signals/moved_code.h"
#include "runtime/signals/operand.h"
#include "runtime/signals/signals.h"
#include "runtime/stacks/code_modules.h"
#include "shadow/address_map.h"

namespace penumbra::signals {
namespace {

// Bits of a page fault's error code, and the traps of a non-canonical address: a stack segment fault where rsp or rbp
// is the base, else a general protection fault (arch/x86 trap_pf.h, trapnr.h).
constexpr greg_t kPageFaultWrite = 2;
constexpr greg_t kStackSegment = 12;
constexpr greg_t kGeneralProtection = 13;

using Handler = void (*)(int, siginfo_t*, void*);

Fault fault_of(int signal, const siginfo_t& info, const ucontext_t& context) {
  const auto& registers = context.uc_mcontext.gregs;
  Fault fault;
  fault.kind = FaultKind::kWildAccess;
  fault.signal = signal;
  fault.addr = AppAddr(info.si_addr);
  fault.is_write = (registers[REG_ERR] & kPageFaultWrite) != 0;
  fault.context = {static_cast<std::uintptr_t>(registers[REG_RIP]), static_cast<std::uintptr_t>(registers[REG_RSP]),
                   static_cast<std::uintptr_t>(registers[REG_RBP])};
  fault.ucontext = &context;
  return fault;
}

// Whether a program whose handler takes this fault is to be told of it. Page protection is its own business, and so is
// what code does that it generated (Java's tests for null are loads from the null page).
bool is_worth_telling(const Fault& fault, StackPart part) {
  const bool is_wild = !fault.address_known || fault.addr.value < kPageSize || fault.addr.value >= kUserAddressEnd ||
                       part == StackPart::kGuard;
  return is_wild && stacks::is_module_code(fault.context.pc);
}

bool is_own_memory(AppAddr a) {
  return in_span(a) || (shadow::is_reserved() && !shadow::has_shadow(a) && a.value < kUserAddressEnd);
}

void report_signal(int signal, const siginfo_t& info, const ucontext_t& context, bool program_handles) {
  Fault fault = fault_of(signal, info, context);
  const greg_t trap = context.uc_mcontext.gregs[REG_TRAPNO];
  if (trap == kGeneralProtection || trap == kStackSegment) {
    const Operand operand = non_canonical_operand(context);
    if (operand.kind == OperandKind::kNone) return;  // a privileged instruction, or an unaligned vector
    fault.address_known = operand.kind == OperandKind::kNonCanonical;
    fault.addr = operand.address;
    fault.is_write = operand.is_write;
  }
  const StackPart part = fault.address_known ? stack_part(fault.addr) : StackPart::kNone;
  if (!program_handles || (fault.address_known && part == StackPart::kNone && is_own_memory(fault.addr))) {
    report::report_fault(fault);
  } else if (process_options().handled_faults && is_worth_telling(fault, part)) {
    report::report_handled_fault(fault);
  }
}

void take_default_action(int signal, siginfo_t* info, bool is_synchronous) {
  os::default_signal(signal);
  // A synchronous fault comes again by itself. One that was sent must be sent again, as it was.
  if (!is_synchronous) {
    os::raw_syscall(SYS_rt_tgsigqueueinfo, os::getpid(), os::gettid(), signal, reinterpret_cast<long>(info));
  }
}

void answer_fault(const Disposition& disposition, int signal, siginfo_t* info, void* context) {
  const bool is_synchronous = info->si_code > 0;
  if (is_synchronous && report::abandon_report(context)) return;
  if (is_synchronous && signal == SIGSEGV && is_resumed(context)) return;
  if ((disposition.flags & static_cast<int>(SA_RESETHAND)) != 0) reset_to_default(signal);
  const bool program_handles = disposition.handler != 0;
  if (is_synchronous) report_signal(signal, *info, *static_cast<const ucontext_t*>(context), program_handles);
  if (program_handles) {
    reinterpret_cast<Handler>(disposition.handler)(signal, info, context);
  } else {
    take_default_action(signal, info, is_synchronous);
  }
}

}  // namespace

void handle_signal(std::size_t slot, int signal, siginfo_t* info, void* context) {
  auto& state = *static_cast<ucontext_t*>(context);
  const Disposition disposition = disposition_of(slot);
  const bool is_fault = is_watched(signal);
  if (is_fault && info->si_code > 0 && load::Interrupted::is_own_fault(state)) return;
  load::Interrupted interrupted(state);
  // A watched signal always comes with its siginfo, others where the program asked for it.
  const bool has_info = is_fault || (disposition.flags & SA_SIGINFO) != 0;
  show_unmoved(interrupted, signal, has_info ? info : nullptr, state);
  if (is_fault) {
    answer_fault(disposition, signal, info, context);
  } else {
    reinterpret_cast<Handler>(disposition.handler)(signal, info, context);
  }
  interrupted.go_on(state);
}

}  // namespace penumbra::signals
