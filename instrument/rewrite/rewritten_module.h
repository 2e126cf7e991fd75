// What rewriting one module gave: the tables of its module file (runtime/base/module_format.h) before they are a file, and
// what was counted on the way.
//
// zone: hosted
#pragma once

#include <cstdint>
#include <vector>

#include "instrument/rewrite/access_plan.h"
#include "runtime/base/module_format.h"

namespace penumbra::rewrite {

struct RewriteStats {
  std::uint64_t functions = 0;
  std::uint64_t doubted = 0;
  std::uint64_t excluded = 0;
  std::uint64_t relocated = 0;
  std::uint64_t entries = 0;  // that need a patch
  std::uint64_t jumps_5 = 0;
  std::uint64_t jumps_2 = 0;
  std::uint64_t unpatched = 0;  // that could not get one
  std::uint64_t tables = 0;
  std::uint64_t text_bytes = 0;
  std::uint64_t hot_bytes = 0;
  std::uint64_t cold_bytes = 0;
};

// What a module file is made of.
struct RewrittenModule {
  std::vector<std::uint8_t> code;  // whole pages
  std::uint64_t text_begin = 0;    // what text offsets count from; stats.text_bytes are its size
  std::int64_t area_address = 0;
  std::vector<ModulePatch> patches;
  std::vector<ModuleCheck> checks;
  std::vector<ModuleAccess> accesses;
  std::vector<ModulePlace> places;
  std::vector<ModuleState> states;
  std::vector<std::uint32_t> links;
  std::vector<std::uint32_t> table_operands;
  std::vector<ModuleTableCopy> table_copies;
  std::vector<ModuleRedirect> redirects;
  RewriteStats stats;
  Ledger ledger;
};

}  // namespace penumbra::rewrite
