// What following and recording a stack costs, warm, beside libunwind's trace cache and glibc's backtrace().
//
// Each benchmark runs at the bottom of a stack of `frames` different functions without frame pointers. libunwind is
// loaded on the side: linked in, it would take the place of backtrace() and of the C++ unwinder. In the loop is the
// walk and nothing else; building the stack and warming the caches are kept out.
#include <dlfcn.h>

#include <cstdint>
#include <functional>
#include <utility>

#include "runtime/base/config.h"
#include "runtime/stacks/depot.h"
#include "runtime/stacks/stacks.h"
#include "runtime/stacks/unwind.h"

#include <benchmark/benchmark.h>

namespace {

using Body = std::function<void(int)>;
using penumbra::kMaxStackFrames;

constexpr int kMaxDepth = 40;

int run_frame(int level, int depth, const Body& body);

// A frame like compiled code's: its own size, some saved registers, its own return address.
template <int Level>
__attribute__((noinline)) int frame(int depth, const Body& body) {
  volatile char local[16 + Level % 5 * 24];
  local[0] = static_cast<char>(depth);
  const int result = run_frame(Level + 1, depth, body);
  return result + local[0] + depth * Level;
}

template <int... Levels>
int dispatch(int level, int depth, const Body& body, std::integer_sequence<int, Levels...>) {
  using Frame = int (*)(int, const Body&);
  static constexpr Frame kFrames[] = {frame<Levels>...};
  return kFrames[level](depth, body);
}

// Jumps into the next frame; inlined, so that each level is one frame on the stack.
__attribute__((always_inline)) inline int run_next(int level, int depth, const Body& body) {
  return dispatch(level, depth, body, std::make_integer_sequence<int, kMaxDepth>());
}

int run_frame(int level, int depth, const Body& body) {
  if (level >= depth) {
    body(level);
    return 0;
  }
  return run_next(level, depth, body);
}

// Runs `body` on a stack that `trace` sees as `frames` frames deep or a little more; the caller counts.
void on_stack(int frames, const Body& body) {
  benchmark::DoNotOptimize(run_frame(0, frames, body));
}

void set_frames(benchmark::State& state, std::size_t frames) {
  state.counters["frames"] = benchmark::Counter(static_cast<double>(frames));
}

void BM_Unwind(benchmark::State& state) {
  const auto max = static_cast<std::size_t>(state.range(0));
  on_stack(kMaxDepth - 1, [&](int) {
    std::uintptr_t frames[kMaxStackFrames];
    std::size_t count = 0;
    for (auto _ : state) {
      count = penumbra::stacks::unwind_by_rules(PENUMBRA_CALLER(), frames, max);
      benchmark::ClobberMemory();
    }
    set_frames(state, count);
  });
}

void BM_Libunwind(benchmark::State& state) {
  void* library = dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return state.SkipWithError("libunwind is not installed");
  const auto unw_backtrace = reinterpret_cast<int (*)(void**, int)>(dlsym(library, "unw_backtrace"));
  const auto max = static_cast<int>(state.range(0));
  on_stack(kMaxDepth - 1, [&](int) {
    void* frames[kMaxStackFrames];
    int count = 0;
    for (auto _ : state) {
      count = unw_backtrace(frames, max);
      benchmark::ClobberMemory();
    }
    set_frames(state, static_cast<std::size_t>(count));
  });
}

void BM_GlibcBacktrace(benchmark::State& state) {
  void* library = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  const auto backtrace = reinterpret_cast<int (*)(void**, int)>(dlsym(library, "backtrace"));
  const auto max = static_cast<int>(state.range(0));
  on_stack(kMaxDepth - 1, [&](int) {
    void* frames[kMaxStackFrames];
    int count = 0;
    for (auto _ : state) {
      count = backtrace(frames, max);
      benchmark::ClobberMemory();
    }
    set_frames(state, static_cast<std::size_t>(count));
  });
}

// Putting a stack that the depot has already.
void BM_DepotPut(benchmark::State& state) {
  const auto count = static_cast<std::size_t>(state.range(0));
  std::uintptr_t frames[kMaxStackFrames];
  for (std::size_t i = 0; i < count; ++i) frames[i] = 0x7f0000000000 + i * 4096;
  for (auto _ : state) benchmark::DoNotOptimize(penumbra::stacks::depot_put(frames, count));
  set_frames(state, count);
}

// What malloc pays, when a program allocates again and again at the same place.
void BM_RecordSameStack(benchmark::State& state) {
  const auto depth = static_cast<std::size_t>(state.range(0));
  on_stack(kMaxDepth - 1, [&](int) {
    for (auto _ : state) benchmark::DoNotOptimize(penumbra::stacks::record(PENUMBRA_CALLER(), depth));
    set_frames(state, depth);
  });
}

__attribute__((noinline)) penumbra::StackId record_here(std::size_t depth) {
  return penumbra::stacks::record(PENUMBRA_CALLER(), depth);
}

// Eight places in turn, up to eight frames apart: the outer frames are the same, the inner ones are not.
__attribute__((noinline)) int record_deeper(int more, std::size_t depth) {
  volatile int local = more;
  if (more == 0) {
    benchmark::DoNotOptimize(record_here(depth));
  } else {
    local = local + record_deeper(more - 1, depth);
  }
  return local;
}

void BM_RecordNearbyStacks(benchmark::State& state) {
  const auto depth = static_cast<std::size_t>(state.range(0));
  on_stack(kMaxDepth - 1, [&](int) {
    int more = 0;
    for (auto _ : state) {
      benchmark::DoNotOptimize(record_deeper(more, depth));
      more = (more + 3) % 8;
    }
    set_frames(state, depth);
  });
}

// As reports do it: by the tables alone.
void BM_UnwindExactly(benchmark::State& state) {
  const auto max = static_cast<std::size_t>(state.range(0));
  on_stack(kMaxDepth - 1, [&](int) {
    std::uintptr_t frames[kMaxStackFrames];
    std::size_t count = 0;
    for (auto _ : state) {
      count = penumbra::stacks::unwind(PENUMBRA_CALLER(), frames, max);
      benchmark::ClobberMemory();
    }
    set_frames(state, count);
  });
}

BENCHMARK(BM_Unwind)->Arg(8)->Arg(24);
BENCHMARK(BM_UnwindExactly)->Arg(8)->Arg(24);
BENCHMARK(BM_Libunwind)->Arg(8)->Arg(24);
BENCHMARK(BM_GlibcBacktrace)->Arg(8)->Arg(24);
BENCHMARK(BM_DepotPut)->Arg(8)->Arg(30);
BENCHMARK(BM_RecordSameStack)->Arg(8)->Arg(30);
BENCHMARK(BM_RecordNearbyStacks)->Arg(8)->Arg(30);

}  // namespace

BENCHMARK_MAIN();
