// `penumbra cache`: what lies in the cache of module files, and taking it out.
//
// zone: hosted
#pragma once

#include <string>
#include <vector>

namespace penumbra::launcher {

// Returns the exit status; throws CommandLineError.
int cache_main(const std::vector<std::string>& arguments);

}  // namespace penumbra::launcher
