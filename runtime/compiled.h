// Joins the compiler entry points (instrument/abi) to what lies above them: objects, stacks, reports, the end.
//
// zone: nomalloc
#pragma once

#include "runtime/report/snapshot.h"

namespace penumbra::runtime {

// Once, after reports and heap are there and before the first check.
void connect_compiled_code(const report::Sources& sources);

// report::Sources::describe_global, from the compilers' registrations.
bool describe_global(AppAddr address, report::GlobalInfo& info);

}  // namespace penumbra::runtime
