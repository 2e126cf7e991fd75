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

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "instrument/rewrite/relocator_x86_64.h"

namespace penumbra::rewrite {

// What a verifier finds wrong.
struct Complaints {
  std::vector<std::string> complaints;  // at most a few; all of them are counted
  std::uint64_t complaint_count = 0;

  void complain(std::string what) {
    constexpr std::uint64_t kMost = 10;
    if (++complaint_count <= kMost) complaints.push_back(std::move(what));
  }
};

struct Verdict : Complaints {
  std::uint64_t instructions = 0;  // moved ones that were compared
  std::uint64_t patches = 0;
};

// Of each moved instruction: visit(first, last) with the place records of its first check, or itself, and of its copy. What
// thunks hold is left out.
template <class Visit>
void for_moved_instructions(const RewrittenModule& module, Visit visit) {
  const auto& places = module.places;
  const auto is_thunk = [&](const ModulePlace& place) {
    auto state = std::ranges::upper_bound(module.states, place.code_offset, {}, &ModuleState::code_offset);
    return state != module.states.begin() && (--state)->is_thunk != 0;
  };
  for (std::size_t n = 0; n < places.size();) {
    std::size_t last = n;
    if (!is_thunk(places[n])) {
      while (last + 1 < places.size() && places[last + 1].text_offset == places[n].text_offset &&
             !is_thunk(places[last + 1])) {
        ++last;
      }
      visit(places[n], places[last]);
    }
    n = last + 1;
  }
}

// `program` gives functions, landing pads and tables, nothing else.
Verdict verify_module(const Program& program, const RewrittenModule& module);

}  // namespace penumbra::rewrite
