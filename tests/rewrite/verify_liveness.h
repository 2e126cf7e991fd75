// Whether checks change only what nobody needs, found out by following every path from each check until what it changed is
// needed or gone: slower than the fixed point of instrument/rewrite/liveness.h, and by other means (Zydis, one check at a
// time, call and return matched, the bytes of the moved code instead of the plan).
//
//  L1  a register or flag that the checks before an instruction leave changed is written on every path from there before
//      anything reads it.
//
// Paths go through direct calls and come back to the calling site; at a return from where the path began, to every site that
// calls the function, or to somebody who knows the ABI only. A path that meets too many calls or instructions is given up
// and counted.
//
// zone: hosted
#pragma once

#include "tests/rewrite/verify.h"

namespace penumbra::rewrite {

struct LivenessVerdict : Complaints {
  std::uint64_t checked = 0;    // places where checks leave something changed
  std::uint64_t undecided = 0;  // of them, those that were given up
};

// As for verify_module(): `program` gives functions, landing pads and tables, nothing else.
LivenessVerdict verify_liveness(const Program& program, const RewrittenModule& module);

}  // namespace penumbra::rewrite
