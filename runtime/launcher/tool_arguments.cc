#include "runtime/launcher/tool_arguments.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

namespace penumbra::launcher {

std::optional<int> parse_arguments(CLI::App& app, const char* tool, const std::vector<std::string>& arguments) {
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));  // CLI11 wants them backwards
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return 0;
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "penumbra: {}: {}\n", tool, error.what());
    return kBadCommandLine;
  }
  return std::nullopt;
}

}  // namespace penumbra::launcher
