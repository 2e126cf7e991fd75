// One run at a time, on request: so that bench/run can interleave allocators that live in processes of their
// own.
//
// A request is one line on the input, `BIT LOOPS WORKERS`; its answer is one line, the nanoseconds that each
// worker took for one run of that test, then `passed`, `xfailed` or `failed`:
//
//     1 10000 2          ->  31277551 31301220 passed
//
// Ends at the end of the input. A request that makes no sense is answered with `error` and a reason.
//
// zone: hosted
#pragma once

#include "bench/vmalloc/driver.h"

#include <iosfwd>

namespace penumbra::bench::vmalloc {

void serve(std::istream& requests, std::ostream& answers, const Parameters& parameters, unsigned cpus,
           unsigned supported, const Runner& runner);

}  // namespace penumbra::bench::vmalloc
