// Command lines of sub-commands.
//
// zone: hosted
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace penumbra::launcher {

inline constexpr int kBadCommandLine = 125;

// Reads the arguments into what `app` was told of. A value is the exit status to end with at once: help was asked for and
// given, or there was an error, told as `penumbra: TOOL: ...` on stderr.
std::optional<int> parse_arguments(CLI::App& app, const char* tool, const std::vector<std::string>& arguments);

}  // namespace penumbra::launcher
