#include "runtime/launcher/cache_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>

#include "runtime/base/options.h"
#include "runtime/launcher/cache_prune.h"
#include "runtime/launcher/command_line.h"
#include "runtime/launcher/module_cache.h"
#include "runtime/launcher/tool_arguments.h"

namespace penumbra::launcher {
namespace {

struct Sum {
  std::size_t files = 0;
  std::uint64_t bytes = 0;

  void add(const CacheFile& file) {
    ++files;
    bytes += file.bytes;
  }
};

std::string words(const Sum& sum) {
  return fmt::format("{} files, {:.1f} MB", sum.files, static_cast<double>(sum.bytes) / 1e6);
}

Sum sum_of(const std::vector<CacheFile>& files) {
  Sum sum;
  for (const CacheFile& file : files) sum.add(file);
  return sum;
}

void print_cache(const std::string& folder, std::uint64_t limit_bytes) {
  Sum ours;
  Sum others;
  Sum half_made;
  for (const CacheFile& file : list_cache(folder)) {
    (file.is_half_made ? half_made : file.is_ours ? ours : others).add(file);
  }
  fmt::print("{}: kept below {:.1f} MB, but for what was used in the last hour\n", folder,
             static_cast<double>(limit_bytes) / 1e6);
  fmt::print("  of this rewriter    {}\n", words(ours));
  fmt::print("  of other rewriters  {}\n", words(others));
  if (half_made.files != 0) fmt::print("  half-made           {}\n", words(half_made));
}

}  // namespace

int cache_main(const std::vector<std::string>& arguments) {
  bool prunes = false;
  bool clears = false;
  std::vector<std::string> options;
  CLI::App app{"Says what lies in the cache of module files, or takes it out.", "penumbra cache"};
  app.add_flag("--prune", prunes, "take out what the limit and its age do not let stay, as happens by itself");
  app.add_flag("--clear", clears, "take out everything; what processes use they keep");
  app.add_option("KEY=VALUE", options, "cache= and cache_limit= as a run would have them");
  if (const auto status = parse_arguments(app, "cache", arguments)) return *status;
  Options given;
  parse_options(given, std::getenv("PENUMBRA_OPTIONS"), nullptr, nullptr);
  for (const std::string& option : options) {
    check_option(option);
    parse_options(given, option.c_str(), nullptr, nullptr);
  }
  const std::string folder = cache_folder(given);
  if (clears) {
    fmt::print("{}: {} taken out\n", folder, words(sum_of(clear_cache(folder))));
  } else if (prunes) {
    fmt::print("{}: {} taken out\n", folder, words(sum_of(prune_cache(folder, given.cache_limit))));
  } else {
    print_cache(folder, given.cache_limit);
  }
  return 0;
}

}  // namespace penumbra::launcher
