#include "instrument/libc/init.h"

#include "instrument/libc/entry.h"
#include "instrument/libc/state.h"
#include "runtime/base/export.h"
#include "runtime/base/os_linux.h"
#include "runtime/base/text_buffer.h"
#include "shadow/address_map.h"

// The linker's bounds of the section that PENUMBRA_LIBC_DECLARE fills.
extern "C" penumbra::libc::RealSlot __start_penumbra_real[] __attribute__((visibility("hidden")));
extern "C" penumbra::libc::RealSlot __stop_penumbra_real[] __attribute__((visibility("hidden")));

namespace penumbra::libc {

constinit State state;

namespace {

void say_on_stderr(TextBuffer& line) {
  line.append("\n");
  os::write_all(2, line.data(), line.size());
}

// Names that only old programs call (__xstat) have no default version, which dlsym asks for.
void* find_next(const char* name) {
  void* const found = PENUMBRA_NEXT(name);
  return found != nullptr ? found : ::dlvsym(RTLD_NEXT, name, "GLIBC_2.2.5");
}

}  // namespace

void* resolve(RealSlot& slot) {
  slot.function = find_next(slot.name);
  if (slot.function == nullptr) {
    FixedTextBuffer<256> text;
    text.append("penumbra: no library defines '").append(slot.name).append("', which the program calls");
    say_on_stderr(text);
    __builtin_trap();
  }
  return slot.function;
}

void resolve_all() {
  for (RealSlot* slot = __start_penumbra_real; slot != __stop_penumbra_real; ++slot) {
    if (slot->function == nullptr) slot->function = find_next(slot->name);
  }
  ::dlerror();  // a name that an older libc lacks must not be the error that the program reads
}

void init(const Options& options, const Hooks& hooks) {
  resolve_all();
  state.reads = options.check != CheckKind::kWrites;
  state.writes = options.check != CheckKind::kReads;
  state.overlap = options.overlap;
  state.strict_memcmp = options.strict_memcmp;
  state.say = hooks.say != nullptr ? hooks.say : say_on_stderr;
  state.before_dlclose = hooks.before_dlclose;
  state.end_process = hooks.end_process;
  state.hold_threads = hooks.hold_threads;
  state.resume_threads = hooks.resume_threads;
  state.rt_sigaction = hooks.rt_sigaction;
  state.threads = hooks.threads;
  state.is_host = true;
  state.checks_on = options.libc && options.shadow != ShadowKind::kOff && shadow::is_reserved();
}

bool is_checking() {
  return state.checks_on;
}

}  // namespace penumbra::libc
