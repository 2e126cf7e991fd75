#include "runtime/report/report.h"

#include <errno.h>
#include <signal.h>
#include <ucontext.h>

#include <atomic>

#include "runtime/base/os_process.h"
#include "runtime/report/compose.h"
#include "runtime/report/exit_status.h"
#include "runtime/report/own_stack.h"
#include "runtime/report/place.h"
#include "runtime/report/proc_maps.h"
#include "runtime/report/report_lock.h"
#include "runtime/report/seen_places.h"
#include "runtime/report/sink.h"
#include "runtime/stacks/stacks.h"
#include "shadow/address_map.h"
#include "shadow/bytes.h"

namespace penumbra::report {
namespace {

// Delivered even while a report runs; a blocked one would end the process on the spot.
constexpr os::SignalSet kSynchronous = os::signal_bit(SIGSEGV) | os::signal_bit(SIGBUS) | os::signal_bit(SIGILL) |
                                       os::signal_bit(SIGFPE) | os::signal_bit(SIGTRAP);

constinit const Options* g_options = nullptr;
constinit Sources g_sources;
constinit SymbolizeHook g_symbolize = nullptr;
constinit Listener g_listener;
constinit SeenPlaces g_seen;
constinit std::atomic<std::uint64_t> g_reports{0};
constinit ReportLock g_lock;

// Everything below belongs to whoever holds g_lock.
constinit NameTable g_names;
constinit ReportInput g_input;
constinit Snapshot g_snapshot;
constinit char g_text_storage[128 << 10] = {};
constinit TextBuffer g_text(g_text_storage, sizeof g_text_storage);
constinit bool g_is_new = false;
// The own stack is in use: its first frame may be returned to. Read in signal handlers of the same thread.
constinit std::atomic<bool> g_is_composing{false};
alignas(16) constinit std::uint8_t g_stack[128 << 10] = {};

void* stack_top() {
  return g_stack + sizeof g_stack;
}

// Kinds, directions and tags share one word of a place's key; see place.h for the direction.
constexpr unsigned kDirectionShift = 24;

// What was wrong, as far as one look tells: enough to recognise most repeats without a lock.
std::uint32_t cheap_kind(const Fault& fault, const FaultPlace& place) {
  std::uint32_t tag = 0;
  if (fault.kind == FaultKind::kBadAccess && shadow::is_reserved() && shadow::has_shadow(fault.bad)) {
    tag = shadow::load_byte(fault.bad);
  }
  return place.direction << kDirectionShift | 0x10000u | static_cast<std::uint32_t>(fault.kind) << 8 | tag;
}

// The bug class as a place's second half; never a value of cheap_kind().
std::uint32_t class_kind(BugClass bug_class, const FaultPlace& place) {
  return place.direction << kDirectionShift | static_cast<std::uint32_t>(bug_class);
}

void name_stack(const Stack& stack, bool first_is_exact) {
  for (std::size_t i = 0; i < stack.count; ++i) {
    if (stack.frames[i] != stacks::kBrokenStack) g_names.add(stack.frames[i], i > 0 || !first_is_exact);
  }
}

struct PlacedFault {
  const Fault& fault;
  FaultPlace place;
};

void prepare_and_compose(void* argument) {
  const auto& [fault, place] = *static_cast<const PlacedFault*>(argument);
  collect(g_sources, fault, g_snapshot);
  g_input.snapshot = &g_snapshot;
  g_input.names = &g_names;
  g_input.diagnosis = diagnose(g_snapshot);
  switch (g_seen.note(place.pc, class_kind(g_input.diagnosis.bug_class, place))) {
    case SeenPlaces::Verdict::kNew: break;
    case SeenPlaces::Verdict::kRepeat:
      if (g_options->multi_shot) break;
      return;
    case SeenPlaces::Verdict::kFull: return;
  }
  g_seen.note(place.pc, cheap_kind(fault, place));
  g_is_new = true;

  collect_stacks(g_sources, g_snapshot, g_input);
  g_names.clear();
  name_stack(g_input.access, fault.ucontext != nullptr);
  name_stack(g_input.allocated, false);
  name_stack(g_input.freed, false);
  if (g_snapshot.has_frame) g_names.add(g_snapshot.frame.function, false);
  if (g_symbolize != nullptr) g_symbolize(g_names);
  compose_report(g_text, g_input);
}

void say_line(const char* what, const Fault& fault) {
  FixedTextBuffer<256> line;
  line.append("penumbra: ")
      .append(what)
      .append(" (pc ")
      .hex(fault.context.pc)
      .append(", addr ")
      .hex(fault.addr.value)
      .append(")\n");
  write_out(line.data(), line.size());
}

bool ends_process(const Diagnosis& diagnosis) {
  switch (g_options->reaction()) {
    case FaultReaction::kReport: return false;
    case FaultReaction::kPanic: return true;
    case FaultReaction::kPanicOnWrite: return diagnosis.access == Access::kWrite || diagnosis.access == Access::kFree;
  }
  return false;
}

void report_locked(PlacedFault& placed, bool counts) {
  const Fault& fault = placed.fault;
  g_text.clear();
  g_is_new = false;
  g_is_composing.store(true, std::memory_order_relaxed);
  const bool finished = penumbra_call_on_stack(prepare_and_compose, &placed, stack_top()) != 0;
  g_is_composing.store(false, std::memory_order_relaxed);
  if (!finished) {
    g_text.append("\npenumbra: a fault inside the report of ")
        .append(g_is_new ? class_word(g_input.diagnosis.bug_class) : "a fault")
        .append(" (pc ")
        .hex(fault.context.pc)
        .append(", addr ")
        .hex(fault.addr.value)
        .append("); the rest of it is left out\n");
    g_is_new = true;
  }
  if (g_text.lost() != 0) {
    FixedTextBuffer<96> line;
    line.append("penumbra: the report was cut by ").dec(g_text.lost()).append(" bytes\n");
    write_out(g_text.data(), g_text.size());
    write_out(line.data(), line.size());
  } else if (g_text.size() != 0) {
    write_out(g_text.data(), g_text.size());
  }
  if (!g_is_new) return;
  g_reports.fetch_add(1, std::memory_order_relaxed);
  if (g_listener.reported != nullptr) {
    FixedTextBuffer<64> word;
    append_class(word, g_input);
    g_listener.reported(fault, word.c_str(), g_text.c_str());
  }
  if (!counts) return;
  mark_reported();
  if (ends_process(g_input.diagnosis)) end_process();
}

struct Printing {
  void (*compose)(Desk& desk, const void* argument);
  const void* argument;
};

void compose_print(void* printing_argument) {
  const Printing& printing = *static_cast<const Printing*>(printing_argument);
  g_names.clear();
  Desk desk(g_text, g_names, g_sources, g_symbolize);
  printing.compose(desk, printing.argument);
}

void report(const Fault& fault, bool counts) {
  if (g_options == nullptr) return;
  PlacedFault placed{fault, place_of(g_sources, fault)};
  if (!g_options->multi_shot && g_seen.note_if_seen(placed.place.pc, cheap_kind(fault, placed.place))) return;
  const int saved_errno = errno;
  const bool may_block = !os::is_sealed();
  const os::SignalSet old = may_block ? os::block_signals(~kSynchronous) : 0;
  switch (g_lock.acquire(current_task(), kReportWaitNs)) {
    case Acquired::kYes:
      report_locked(placed, counts);
      g_lock.release();
      break;
    case Acquired::kNested: say_line("a fault inside a report is not reported", fault); break;
    case Acquired::kTimedOut:
      say_line("a fault is not reported: another report does not end", fault);
      if (counts) mark_reported();
      break;
  }
  if (may_block) os::restore_signals(old);
  errno = saved_errno;
}

}  // namespace

void init_reports(const Options& options, const Sources& sources, SymbolizeHook symbolize) {
  g_options = &options;
  g_sources = sources;
  g_symbolize = symbolize;
  init_places();
  remember_executable();
  reserve_mapping_buffers();
  open_sink(options.log_path);
  init_exit_status(static_cast<int>(options.exitcode));
  set_fault_hook(report_fault);
}

void set_listener(const Listener& listener) {
  g_listener = listener;
}

void end_process() {
  if (g_listener.ending != nullptr) g_listener.ending();
  end_in_panic();
}

void print(void (*compose)(Desk& desk, const void* argument), const void* argument) {
  if (g_options == nullptr) return;
  const int saved_errno = errno;
  const bool may_block = !os::is_sealed();
  const os::SignalSet old = may_block ? os::block_signals(~kSynchronous) : 0;
  if (g_lock.acquire(current_task(), kReportWaitNs) == Acquired::kYes) {
    Printing printing{compose, argument};
    g_text.clear();
    penumbra_call_on_stack(compose_print, &printing, stack_top());
    write_out(g_text.data(), g_text.size());
    g_lock.release();
  }
  if (may_block) os::restore_signals(old);
  errno = saved_errno;
}

void fork_child() {
  g_lock.reset_after_fork();
  g_reports.store(0, std::memory_order_relaxed);
  forget_reported_after_fork();
}

void report_fault(const Fault& fault) {
  report(fault, true);
}

void report_handled_fault(const Fault& fault) {
  report(fault, false);
}

bool abandon_report(void* ucontext) {
  if (!g_lock.is_held_by(current_task()) || !g_is_composing.load(std::memory_order_relaxed)) return false;
  g_is_composing.store(false, std::memory_order_relaxed);
  auto& registers = static_cast<ucontext_t*>(ucontext)->uc_mcontext.gregs;
  registers[REG_RIP] = static_cast<greg_t>(reinterpret_cast<std::uintptr_t>(&penumbra_abandon_stack));
  registers[REG_RDI] = static_cast<greg_t>(reinterpret_cast<std::uintptr_t>(stack_top()));
  return true;
}

ReportCounts report_counts() {
  return {g_reports.load(std::memory_order_relaxed), g_seen.repeats(), g_seen.refused()};
}

void say_repeats() {
  const std::uint64_t again = g_seen.repeats();
  const std::uint64_t refused = g_seen.refused();
  if ((again == 0 && refused == 0) || !has_reported() || g_options->multi_shot) return;
  FixedTextBuffer<192> line;
  line.append("penumbra: ").dec(again).append(" more at places that were reported");
  if (refused != 0) line.append(", ").dec(refused).append(" not reported at all: too many places");
  line.append("\n");
  write_out(line.data(), line.size());
}

}  // namespace penumbra::report
