#include "runtime/stats.h"

#include "allocator/heap/heap.h"
#include "allocator/region/stack_pool.h"
#include "instrument/load/load.h"
#include "instrument/load/system_calls.h"
#include "runtime/base/options.h"
#include "runtime/report/exit_status.h"
#include "runtime/report/report.h"
#include "runtime/report/sink.h"
#include "runtime/report/task.h"
#include "runtime/stacks/depot.h"
#include "runtime/vmalloc_api.h"

namespace penumbra::runtime {
namespace {

void append_line(TextBuffer& out, const char* name, std::uint64_t value) {
  out.append(name).append(":").pad_to(22);
  out.dec(value).append("\n");
}

void append_heap_stats(TextBuffer& out) {
  const heap::Stats heap = heap::stats();
  append_line(out, "heap arenas", heap.arenas);
  append_line(out, "heap arena bytes", heap.arena_bytes);
  append_line(out, "heap units taken", heap.taken_units);
  append_line(out, "quarantined bytes", heap.quarantined_bytes);
  append_line(out, "blocks lost", heap.lost_blocks);
}

void append_stack_stats(TextBuffer& out) {
  const region::StackPool::Counts stacks = region::process_stacks().counts();
  append_line(out, "thread stacks lent", stacks.lent);
  append_line(out, "thread stacks cached", stacks.cached);
  append_line(out, "thread stacks taken", stacks.taken);
  append_line(out, "thread stacks reused", stacks.reused);
}

void append_load_stats(TextBuffer& out) {
  const load::LoadCounts counts = load::counts();
  append_line(out, "modules", counts.modules);
  append_line(out, "modules rewritten", counts.rewritten);
  append_line(out, "modules missing", counts.missing);
  append_line(out, "modules refused", counts.refused);
  append_line(out, "areas released", counts.released);
  append_line(out, "ioctls not known", load::unknown_controls());
}

void append_report_stats(TextBuffer& out) {
  const report::ReportCounts counts = report::report_counts();
  append_line(out, "reports", counts.reports);
  append_line(out, "repeated faults", counts.repeats);
  append_line(out, "faults not reported", counts.refused);
}

}  // namespace

void append_stats(TextBuffer& out) {
  append_vmalloc_stats(out);
  append_heap_stats(out);
  append_stack_stats(out);
  stacks::append_depot_stats(out);
  if (process_options().rewrite != RewriteKind::kOff) append_load_stats(out);
  append_report_stats(out);
}

void say_stats() {
  if (!report::owns_memory()) return;
  FixedTextBuffer<4096> text;
  text.append("penumbra: statistics of process ")
      .dec(static_cast<std::uint64_t>(report::current_task().pid))
      .append("\n");
  append_stats(text);
  report::write_out(text.data(), text.size());
}

}  // namespace penumbra::runtime
