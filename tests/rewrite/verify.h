// Whether a module file is right about its module, found out again by slower and simpler means: one decoder (Zydis), the file's
// tables, and the bytes of both.
//
//  V1  patches do not overlap, and each begins where an instruction does; a short jump leads to a slot of its own.
//  V2  no byte under a patch is executed natively: what control can reach from calls' return sites, functions, pointers,
//      landing pads and tables without meeting a patch.
//  V3  a moved jump leads where the original's does: to the moved target where there is one, else to the original.
//  V4  every byte of code behind a place record belongs to that record's instruction: its checks, made only of what checks
//      are made of, and then its copy.
//
// zone: hosted
#pragma once

#include <string>
#include <vector>

#include "instrument/rewrite/relocator_x86_64.h"

namespace penumbra::rewrite {

struct Verdict {
  std::uint64_t instructions = 0;  // moved ones that were compared
  std::uint64_t patches = 0;
  std::vector<std::string> complaints;  // at most a few; all of them are counted
  std::uint64_t complaint_count = 0;
};

// `program` gives functions, landing pads and tables, nothing else.
Verdict verify_module(const Program& program, const RewrittenModule& module);

}  // namespace penumbra::rewrite
