// From a fault to a report on stderr: the one way, whatever raised it.
//
//     raise_fault -> place seen before? count, return
//                 -> lock (bounded wait) -> own stack -> collect -> diagnose -> name frames -> compose -> one write
//                 -> mark the exit status -> go on, or end the process (fault=)
//
// A report runs on a stack of its own, with all signals but the synchronous ones blocked, uses static buffers only,
// takes foreign locks only by trying, and keeps errno.
//
// I1  at most one thread is in a report. A second one waits kReportWaitNs at most, then says one line instead.
// I2  a fault raised by a report's own thread while it reports is one line, never a second report. A processor
//     fault there abandons the report: what was composed so far is printed, and the program goes on.
// I3  each faulty place, that is pc and class, is reported once unless multi_shot=1.
//
// zone: signal-safe
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/options.h"
#include "runtime/report/snapshot.h"

namespace penumbra::report {

inline constexpr std::uint64_t kReportWaitNs = 10'000'000'000;

// May learn more about named frames (the helper process); null: nobody does.
using SymbolizeHook = void (*)(NameTable& names);

// Once, before the program's first thread. Sets the fault hook. `options` is kept, not copied.
void init_reports(const Options& options, const Sources& sources, SymbolizeHook symbolize);
void fork_child();

// What the sanitizers' interface (instrument/abi) hears: of each printed report its word and text, under the report's
// lock; and that the process is about to end because of one. Set once at start; null: nobody listens.
struct Listener {
  void (*reported)(const Fault& fault, const char* word, const char* text) = nullptr;
  void (*ending)() = nullptr;
};
void set_listener(const Listener& listener);
// As fault=panic does after a report.
[[noreturn]] void end_process();

// Composes something that is no report, with the report's lock, stack, buffers and sink. `compose` fills in the names
// it needs and calls symbolize() between naming and printing. Nothing is printed where the lock cannot be had.
class Desk {
 public:
  constexpr Desk(TextBuffer& out_buffer, NameTable& name_table, const Sources& report_sources, SymbolizeHook hook)
      : out(out_buffer), names(name_table), sources(report_sources), symbolize_(hook) {}
  void symbolize() {
    if (symbolize_ != nullptr) symbolize_(names);
  }

  TextBuffer& out;
  NameTable& names;
  const Sources& sources;

 private:
  SymbolizeHook symbolize_;
};
void print(void (*compose)(Desk& desk, const void* argument), const void* argument);

void report_fault(const Fault& fault);
// The same for a fault that the program may go on to handle itself: it does not change the exit status.
void report_handled_fault(const Fault& fault);

// For a signal handler. If the calling thread was composing a report: makes the interrupted context continue behind
// it, and answers true.
bool abandon_report(void* ucontext);

// Reports printed by this process (a fork child counts its own), faults at places reported before, and faults that
// found the table of places full.
struct ReportCounts {
  std::uint64_t reports, repeats, refused;
};
ReportCounts report_counts();

// One line about places that came again, if there were any; called when the process ends.
void say_repeats();

}  // namespace penumbra::report
