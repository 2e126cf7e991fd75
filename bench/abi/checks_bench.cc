// What one outline check costs: a call of the entry point that compiled code calls, in a loop over addresses of clean
// memory, of the last granule of an object, of unaligned memory, and of memory in the region span, where the unit map is
// asked as well (_in_span: its answer here is one load, as a unit map's of a populated unit is). The floor is the same loop calling a function
// that returns at once; the exact search without a fast path stands beside it.
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdint>

#include "instrument/abi/abi.h"
#include "shadow/address_map.h"
#include "shadow/check.h"
#include "shadow/poison.h"

extern "C" {
void __asan_load1_noabort(std::uintptr_t);
void __asan_load4_noabort(std::uintptr_t);
void __asan_load8_noabort(std::uintptr_t);
void __asan_load16_noabort(std::uintptr_t);
void __asan_loadN_noabort(std::uintptr_t, std::size_t);
void __asan_before_dynamic_init(std::uintptr_t);
}

namespace penumbra::abi {
namespace {

constexpr std::size_t kBytes = 16384;

// 32-byte objects of 28 bytes, so that every fourth granule is partial; mapped and its shadow touched.
std::uintptr_t memory() {
  static const std::uintptr_t begin = [] {
    if (!shadow::reserve_direct_map().ok()) return std::uintptr_t{0};
    start();
    const AppAddr at(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (std::size_t i = 0; i < kBytes; i += 32) shadow::unpoison(at + i, 28);
    return at.value;
  }();
  return begin;
}

template <class Check>
void loop(benchmark::State& state, std::size_t offset, Check check) {
  const std::uintptr_t base = memory();
  if (base == 0) return state.SkipWithError("no shadow");
  std::size_t at = 0;
  for (auto _ : state) {
    check(base + at + offset);
    at = (at + 32) & (kBytes - 32);
  }
}

void BM_OutlineCheck_Floor_call(benchmark::State& state) {
  loop(state, 0, __asan_before_dynamic_init);
}

void BM_OutlineCheck_load1(benchmark::State& state) {
  loop(state, 0, __asan_load1_noabort);
}

void BM_OutlineCheck_load1_partial(benchmark::State& state) {
  loop(state, 27, __asan_load1_noabort);
}

void BM_OutlineCheck_load4(benchmark::State& state) {
  loop(state, 0, __asan_load4_noabort);
}

void BM_OutlineCheck_load4_partial(benchmark::State& state) {
  loop(state, 24, __asan_load4_noabort);
}

void BM_OutlineCheck_load8(benchmark::State& state) {
  loop(state, 0, __asan_load8_noabort);
}

void BM_OutlineCheck_load8_unaligned(benchmark::State& state) {
  loop(state, 3, __asan_load8_noabort);
}

void BM_OutlineCheck_load16(benchmark::State& state) {
  loop(state, 0, __asan_load16_noabort);
}

void BM_OutlineCheck_load24(benchmark::State& state) {
  loop(state, 0, [](std::uintptr_t address) { __asan_loadN_noabort(address, 24); });
}

// The span and its unit map for the loops below: one word a unit, all of them populated.
void loop_in_span(benchmark::State& state, void (*check)(std::uintptr_t)) {
  static constinit std::atomic<std::uint64_t> words[2] = {2, 2};
  static constinit AppAddr begin;
  begin = AppAddr(round_down(memory(), shadow::kUnitSize));
  shadow::set_span({begin, begin + 2 * shadow::kUnitSize, [](AppAddr from, AppAddr to) {
                      for (AppAddr at = from; at < to;
                           at = AppAddr(round_down(at.value, shadow::kUnitSize)) + shadow::kUnitSize) {
                        if (words[(at - begin) / shadow::kUnitSize].load(std::memory_order_acquire) != 2) return at;
                      }
                      return shadow::kNoBadByte;
                    }});
  start();
  loop(state, 0, check);
  shadow::set_span({});
  start();
}

void BM_OutlineCheck_load1_in_span(benchmark::State& state) {
  loop_in_span(state, __asan_load1_noabort);
}

void BM_OutlineCheck_load8_in_span(benchmark::State& state) {
  loop_in_span(state, __asan_load8_noabort);
}

void BM_OutlineCheck_search8(benchmark::State& state) {
  loop(state, 0, [](std::uintptr_t address) { benchmark::DoNotOptimize(shadow::first_bad(AppAddr(address), 8)); });
}

BENCHMARK(BM_OutlineCheck_Floor_call);
BENCHMARK(BM_OutlineCheck_load1);
BENCHMARK(BM_OutlineCheck_load1_partial);
BENCHMARK(BM_OutlineCheck_load4);
BENCHMARK(BM_OutlineCheck_load4_partial);
BENCHMARK(BM_OutlineCheck_load8);
BENCHMARK(BM_OutlineCheck_load8_unaligned);
BENCHMARK(BM_OutlineCheck_load16);
BENCHMARK(BM_OutlineCheck_load24);
BENCHMARK(BM_OutlineCheck_load1_in_span);
BENCHMARK(BM_OutlineCheck_load8_in_span);
BENCHMARK(BM_OutlineCheck_search8);

}  // namespace
}  // namespace penumbra::abi

BENCHMARK_MAIN();
