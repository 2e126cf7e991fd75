// `penumbra bisect PROGRAM [ARGS]`: which function of which module makes a program misbehave when it is rewritten.
//
// The program is run with halves left out, first of its modules, then of that module's functions, as optout=FILE leaves
// them out, until one function is left that makes the difference. A run is good when it does as the program does with
// everything left out: the same exit status and the same output. Programs whose output differs from run to run need a
// wrapper that hides that.
//
// zone: hosted
#pragma once

#include <string>
#include <vector>

namespace penumbra::launcher {

// `options` are KEY=VALUE words as for a run. Prints exactly one line of an optout file to stdout, what it does to stderr. The exit
// status: 0 when a function was found, 1 when the program behaves (or misbehaves with everything left out as well).
int bisect_main(const std::string& options, const std::vector<std::string>& arguments);

}  // namespace penumbra::launcher
