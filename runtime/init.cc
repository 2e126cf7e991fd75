#include "runtime/init.h"

#include <sys/auxv.h>

#include <atomic>
#include <cstddef>

#include "allocator/heap/heap.h"
#include "allocator/region/regions.h"
#include "instrument/abi/abi.h"
#include "instrument/abi/compiled.h"
#include "instrument/abi/leaving.h"
#include "instrument/libc/init.h"
#include "instrument/libc/resource_limits.h"
#include "instrument/load/areas.h"
#include "instrument/load/load.h"
#include "instrument/load/system_calls.h"
#include "runtime/base/options.h"
#include "runtime/base/os_linux.h"
#include "runtime/base/os_process.h"
#include "runtime/base/raw_memory.h"
#include "runtime/base/text_buffer.h"
#include "runtime/compiled.h"
#include "runtime/libc_link.h"
#include "runtime/module_keys.h"
#include "runtime/preload/objects.h"
#include "runtime/preload/operators.h"
#include "runtime/prepare.h"
#include "runtime/process/exec.h"
#include "runtime/pthread_stacks.h"
#include "runtime/report/exit_status.h"
#include "runtime/report/helper_process.h"
#include "runtime/report/modules.h"
#include "runtime/report/report.h"
#include "runtime/report/symbolizer.h"
#include "runtime/signals/dispositions.h"
#include "runtime/signals/rt_sigaction.h"
#include "runtime/signals/signals.h"
#include "runtime/stacks/stacks.h"
#include "runtime/stats.h"
#include "runtime/threads.h"
#include "shadow/address_map.h"

// The stack as the kernel made it: argc, argv, null, envp, null. ld.so exports it (GLIBC_2.2.5).
extern "C" void* __libc_stack_end;

namespace penumbra::runtime {
namespace {

constinit std::atomic<Stage> g_stage{Stage::kNotYet};

void say(TextBuffer& line) {
  line.append("\n");
  os::write_all(2, line.data(), line.size());
}

void warn_about_option(OptionError error, const char* piece, std::size_t length, void*) {
  FixedTextBuffer<512> line;
  line.append("penumbra: warning: PENUMBRA_OPTIONS: ");
  describe_option_error(line, error, piece, length);
  say(line);
}

char** arguments_on_stack() {
  return static_cast<char**>(__libc_stack_end) + 1;
}

char** environment_on_stack() {
  auto* const words = static_cast<std::uintptr_t*>(__libc_stack_end);
  if (words == nullptr) return nullptr;
  const std::uintptr_t argc = words[0];
  // What a program's start looks like; anything else means that somebody moved the stack.
  if (argc > (1u << 20) || words[argc + 1] != 0) return nullptr;
  return reinterpret_cast<char**>(words + argc + 2);
}

// The shadow is what every check reads. Without it the program runs, unchecked.
bool reserve_shadow(Options& options) {
  if (options.shadow == ShadowKind::kOff) return false;
  if (options.shadow == ShadowKind::kDirect && shadow::reserve_direct_map().ok()) return true;
  // Process limits, strict overcommit, or something of the program's in its place: a page table fits everywhere.
  const os::Result reserved = shadow::reserve_paged_map(options.span);
  if (reserved.ok()) {
    options.shadow = ShadowKind::kPaged;  // module files are those for it from now on
    return true;
  }
  FixedTextBuffer<256> line;
  line.append("penumbra: no room for any shadow (errno ")
      .dec(static_cast<std::uint64_t>(reserved.error()))
      .append("; a limit on address space, or strict overcommit?): heap and libc checks are off");
  say(line);
  return false;
}

// A program with raised privileges ignores the environment; its compiled checks need a shadow all the same.
void start_compiled_checks_only() {
  const char* path = nullptr;
  if (!abi::find_inline_checks(&path)) return;
  if (shadow::reserve_direct_map().ok()) abi::start();
  abi::require_shadow_for_compiled_code();
}

report::Sources report_sources() {
  report::Sources sources;
  sources.describe_block = heap::describe;
  sources.in_span = region::owns;
  sources.describe_area = region::describe;
  sources.describe_global = describe_global;
  sources.unwind = stacks::unwind;
  sources.unwind_ucontext = stacks::unwind_ucontext;
  sources.stored_stack = stacks::depot_get;
  return sources;
}

// Regions, and the heap in them. Says who serves malloc from now on: where something is missing, the program's own.
preload::Source start_heap(const Options& options) {
  FixedTextBuffer<256> line;
  line.append("penumbra: ");
  if (!region::init(options)) {
    line.append("cannot reserve the span of regions: heap checks are off");
    say(line);
    return preload::Source::kNext;
  }
  init_threads();
  if (options.stacks) init_pthread_stacks();
  if (!options.heap) return preload::Source::kNext;
  if (!heap::init(options)) {
    line.append("libmimalloc is not loaded or not the one we know: heap checks are off");
    say(line);
    return preload::Source::kNext;
  }
  preload::find_replaced_operators();
  return preload::Source::kOurs;
}

void before_end() {
  report::say_repeats();
  if (process_options().stats) say_stats();
}

// The launcher's cache_folder(), by the same variables.
void append_cache_folder(TextBuffer& folder, const Options& options, char** envp) {
  const char* const cache = find_environment(envp, "XDG_CACHE_HOME");
  const char* const home = find_environment(envp, "HOME");
  if (options.cache[0] != '\0') {
    folder.append(options.cache);
  } else if (cache != nullptr && *cache == '/') {
    folder.append(cache).append("/penumbra");
  } else if (home != nullptr && *home == '/') {
    folder.append(home).append("/.cache/penumbra");
  }
}

// Process ruling 19: a debugger's breakpoints and our jumps would overwrite each other.
bool may_rewrite(const Options& options) {
  if (options.rewrite == RewriteKind::kOn || os::tracer_pid() == 0) return true;
  FixedTextBuffer<160> line;
  line.append(
      "penumbra: the program is being traced: loads and stores are not checked (rewrite=1 checks them all the same)");
  say(line);
  return false;
}

void rewrite_modules(const Options& options, char** envp) {
  FixedTextBuffer<kMaxPath> folder;
  append_cache_folder(folder, options, envp);
  read_optout_list(options);
  const load::LoadCounts counts = load::start({.cache = folder.c_str(),
                                               .append_key = append_key,
                                               .prepare = prepare_modules,
                                               .keeps_text = os::tracer_pid() != 0,
                                               .arrived = lead_another_libc_to_heap});
  if (counts.rewritten != 0 || counts.follows_loader) {
    signals::cover_all_signals();
    signals::take_libc_call();
  }
  if (counts.code_is_fixed != 0) {
    FixedTextBuffer<256> line;
    line.append("penumbra: the kernel does not let code be changed (errno ");
    line.dec(static_cast<std::uint64_t>(counts.code_is_fixed)).append("): loads and stores are not checked");
    say(line);
  }
  if (!options.verbose) return;
  FixedTextBuffer<256> line;
  line.append("penumbra: rewritten ").dec(counts.rewritten).append(" of ").dec(counts.modules);
  line.append(" modules; without a module file ").dec(counts.missing).append(", refused ").dec(counts.refused);
  say(line);
}

Stage bring_up(char** envp) {
  // Standing aside or not: our entry points are bound, and call on to these.
  libc::resolve_all();
  abi::resolve_leaving();
  if (getauxval(AT_SECURE) != 0) {
    start_compiled_checks_only();
    return Stage::kAside;
  }
  if (process::stands_aside(arguments_on_stack(), envp)) {
    abi::stand_aside();
    return Stage::kAside;
  }
  Options& options = process_options();
  parse_options(options, find_environment(envp, "PENUMBRA_OPTIONS"), warn_about_option, nullptr);
  process::init_exec({.before = libc::before_exec, .failed = libc::exec_failed});
  const bool has_shadow = reserve_shadow(options);
  abi::require_shadow_for_compiled_code();
  if (!has_shadow) return Stage::kAside;
  const bool rewrites = options.rewrite != RewriteKind::kOff && may_rewrite(options);
  if (rewrites) load::hold_room();
  const preload::Source heap = start_heap(options);
  preload::init(heap);
  if (options.symbolize || rewrites) report::find_helper();
  report::init_reports(options, report_sources(), options.symbolize ? report::symbolize : nullptr);
  report::arm_exit_handler(before_end);
  signals::init(report_sources().in_span, pthread_stack_part);
  connect_compiled_code(report_sources());
  abi::start();
  libc::init(options, {.before_dlclose = report::remember_all,
                       .end_process = report::end_now,
                       .hold_threads = options.worker ? region::hold_worker : nullptr,
                       .resume_threads = options.worker ? region::resume_worker : nullptr,
                       .rt_sigaction = signals::on_rt_sigaction,
                       .threads = pthread_stack_hooks()});
  if (rewrites) {
    load::check_outputs_before(options.strict_syscalls);
    load::set_sigaction_hook(signals::on_rt_sigaction);
    load::set_mapping_hook(libc::on_mapping_call);
    rewrite_modules(options, envp);
    lead_libc_to_entry_points();
  }
  if (heap == preload::Source::kOurs) lead_libc_to_heap();
  libc::hide_inherited_limits();  // all that is ours is mapped, and the room that was held is not any more
  return Stage::kReady;
}

// GNU's dynamic loader passes a constructor what main gets.
__attribute__((constructor)) void construct(int, char**, char** envp) {
  init(envp);
}

}  // namespace

Stage stage() {
  return g_stage.load(std::memory_order_acquire);
}

void init(char** envp) {
  Stage expected = Stage::kNotYet;
  if (!g_stage.compare_exchange_strong(expected, Stage::kRunning)) return;
  const Stage reached = bring_up(envp != nullptr ? envp : environment_on_stack());
  if (reached == Stage::kAside) preload::init(preload::Source::kNext);
  g_stage.store(reached, std::memory_order_release);
}

const char* find_environment(char** envp, const char* name) {
  if (envp == nullptr) return nullptr;
  const std::size_t length = raw_length(name);
  for (; *envp != nullptr; ++envp) {
    std::size_t i = 0;
    while (i < length && (*envp)[i] == name[i]) ++i;
    if (i == length && (*envp)[i] == '=') return *envp + length + 1;
  }
  return nullptr;
}

}  // namespace penumbra::runtime
