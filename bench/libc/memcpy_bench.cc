// What the checks of an entry point add to a call, by its size: calls on clean memory in a loop, each with the same
// arguments, so caches and predictors are warm. The floor of each is libc's own function, called through a pointer as
// the program's linkage table would. Look-up of the functions and page faults are kept out.
#include <benchmark/benchmark.h>
#include <dlfcn.h>
#include <string.h>
#include <sys/mman.h>

#include <cstddef>

#include "instrument/libc/init.h"
#include "shadow/address_map.h"

namespace penumbra::libc {
namespace {

constexpr std::size_t kMost = 1 << 16;

// Two ranges, 'x' all over, all accessible. Null where there is no shadow.
char* ranges() {
  static char* const begin = []() -> char* {
    if (!shadow::reserve_direct_map().ok()) return nullptr;
    void* const p = mmap(nullptr, 4 * kMost, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    init(Options{}, Hooks{});
    memset(p, 'x', 4 * kMost);
    return static_cast<char*>(p);
  }();
  return begin;
}

template <class Function>
Function libcs(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

using Copy = void* (*)(void*, const void*, std::size_t);
using Set = void* (*)(void*, int, std::size_t);
using Length = std::size_t (*)(const char*);
using Compare = int (*)(const char*, const char*);

// Runs `call(to, from, bytes)`; `from` is a text of that many bytes with its terminator, `to` another one.
template <class Call>
void run(benchmark::State& state, Call call) {
  char* const to = ranges();
  if (to == nullptr) return state.SkipWithError("no room for the shadow");
  char* const from = to + 2 * kMost;
  const auto bytes = static_cast<std::size_t>(state.range(0));
  to[bytes - 1] = from[bytes - 1] = '\0';
  for (auto _ : state) {
    call(to, from, bytes);
    benchmark::ClobberMemory();
  }
  to[bytes - 1] = from[bytes - 1] = 'x';
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void copy(benchmark::State& state, Copy function) {
  run(state, [=](char* to, const char* from, std::size_t n) { benchmark::DoNotOptimize(function(to, from, n)); });
}

void set(benchmark::State& state, Set function) {
  run(state, [=](char* to, const char*, std::size_t n) { benchmark::DoNotOptimize(function(to, 'x', n - 1)); });
}

void length(benchmark::State& state, Length function) {
  run(state, [=](char*, const char* from, std::size_t) { benchmark::DoNotOptimize(function(from)); });
}

void compare(benchmark::State& state, Compare function) {
  run(state, [=](char* to, const char* from, std::size_t) { benchmark::DoNotOptimize(function(to, from)); });
}

void BM_Memcpy(benchmark::State& state) {
  copy(state, memcpy);
}
void BM_Memcpy_Floor_libc(benchmark::State& state) {
  copy(state, libcs<Copy>("memcpy"));
}
void BM_Memset(benchmark::State& state) {
  set(state, memset);
}
void BM_Memset_Floor_libc(benchmark::State& state) {
  set(state, libcs<Set>("memset"));
}
void BM_Strlen(benchmark::State& state) {
  length(state, strlen);
}
void BM_Strlen_Floor_libc(benchmark::State& state) {
  length(state, libcs<Length>("strlen"));
}
void BM_Strcmp(benchmark::State& state) {
  compare(state, strcmp);
}
void BM_Strcmp_Floor_libc(benchmark::State& state) {
  compare(state, libcs<Compare>("strcmp"));
}

#define PENUMBRA_SIZES Arg(8)->Arg(32)->Arg(256)->Arg(4096)->Arg(kMost)
BENCHMARK(BM_Memcpy)->PENUMBRA_SIZES;
BENCHMARK(BM_Memcpy_Floor_libc)->PENUMBRA_SIZES;
BENCHMARK(BM_Memset)->PENUMBRA_SIZES;
BENCHMARK(BM_Memset_Floor_libc)->PENUMBRA_SIZES;
BENCHMARK(BM_Strlen)->PENUMBRA_SIZES;
BENCHMARK(BM_Strlen_Floor_libc)->PENUMBRA_SIZES;
BENCHMARK(BM_Strcmp)->PENUMBRA_SIZES;
BENCHMARK(BM_Strcmp_Floor_libc)->PENUMBRA_SIZES;

}  // namespace
}  // namespace penumbra::libc

BENCHMARK_MAIN();
