// `penumbra rewrite FILE...`: writes the module file of an executable or library, or tells what it would hold.
//
// zone: hosted
#pragma once

#include <string>
#include <vector>

namespace penumbra::launcher {

// `arguments` stand behind the word `rewrite`. The exit status: 0, or 1 when a file could not be rewritten (one line on
// stderr says which and why; the others are still done), or 125 for a bad command line.
int rewrite_main(const std::vector<std::string>& arguments);

}  // namespace penumbra::launcher
