#include "runtime/launcher/rewrite_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>

#include "runtime/launcher/module_cache.h"
#include "runtime/launcher/tool_arguments.h"

namespace penumbra::launcher {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kOneFailed = 1;

struct Wish {
  std::vector<std::string> files;
  std::string folder;
  bool prepare = false;
  bool stats = false;
  bool ledger = false;
  bool relocate_only = false;
  std::string options;
  std::string disassemble;
};

double megabytes(std::uint64_t bytes) {
  return static_cast<double>(bytes) / 1e6;
}

void print_stats(const std::string& file, const rewrite::RewriteStats& s, std::size_t file_bytes,
                 double milliseconds) {
  fmt::print("{}: {:.2f} MB of text in {:.0f} ms\n", file, megabytes(s.text_bytes), milliseconds);
  fmt::print("  functions   {} ({} not understood, {} left alone by rule, {} rewritten)\n", s.functions, s.doubted,
             s.excluded, s.relocated);
  fmt::print("  entries     {} (long jumps {}, short jumps {}, not patched {})\n", s.entries, s.jumps_5 - s.jumps_2,
             s.jumps_2, s.unpatched);
  fmt::print("  jump tables {}\n", s.tables);
  fmt::print("  code        {:.2f} MB hot, {:.2f} MB cold; module file {:.2f} MB\n", megabytes(s.hot_bytes),
             megabytes(s.cold_bytes), megabytes(file_bytes));
}

void print_ledger(const rewrite::Ledger& ledger) {
  fmt::print("  memory accesses\n");
  for (std::size_t n = 0; n < rewrite::kDispositions; ++n) {
    fmt::print("  {:>10}  {}\n", ledger.counts[n], rewrite::disposition_name(static_cast<rewrite::Disposition>(n)));
  }
  fmt::print("  checks {}, of which {} save the flags and {} spill a register\n", ledger.checks, ledger.flags_saved,
             ledger.registers_spilled);
}

void rewrite_one(const std::string& file, const Wish& wish, const Wishes& wishes) {
  const auto begin = Clock::now();
  rewrite::RewriteOptions options = wishes.for_module(file);
  options.checks = !wish.relocate_only;
  if (!wish.disassemble.empty()) {
    fmt::print("{}", disassemble_function(file, wish.disassemble, options));
    return;
  }
  const RewriteResult result = rewrite_file(file, wish.folder, options, wishes.key(file));
  const std::chrono::duration<double, std::milli> took = Clock::now() - begin;
  if (wish.stats) print_stats(file, result.stats, result.file_bytes, took.count());
  if (wish.ledger) print_ledger(result.ledger);
}

}  // namespace

int rewrite_main(const std::vector<std::string>& arguments) {
  Wish wish;
  CLI::App app{"Rewrites ELF files so that their loads and stores are checked.", "penumbra rewrite"};
  app.add_option("FILE", wish.files, "executables and shared libraries")->required();
  app.add_option("-o,--output", wish.folder, "write module files to this folder, named by build-id or contents");
  app.add_flag("--prepare", wish.prepare, "make only what the folder has not, and the folder itself, silently");
  app.add_flag("--stats", wish.stats, "print sizes, entries and times");
  app.add_flag("--ledger", wish.ledger, "count every memory access: checked, merged, or not checked and why");
  app.add_option("--disassemble", wish.disassemble,
                 "show a function (by name, or 0xADDRESS in it) beside its rewritten copy");
  app.add_flag("--relocate-only", wish.relocate_only, "move code without checks, to see what moving alone costs");
  app.add_option("--options", wish.options,
                 "check=, exact=, optout=, shadow= and cache_limit= as a run would have them, separated by colons");
  if (const auto status = parse_arguments(app, "rewrite", arguments)) return *status;
  Options given;
  parse_options(given, wish.options.c_str(), nullptr, nullptr);
  Wishes wishes;
  try {
    wishes = Wishes(given);
  } catch (const std::runtime_error& error) {
    fmt::print(stderr, "penumbra: {}\n", error.what());
    return kBadCommandLine;
  }
  if (wish.prepare) {
    prepare_files(wish.files, wish.folder, wishes);
    return 0;
  }
  int status = 0;
  for (const std::string& file : wish.files) {
    try {
      rewrite_one(file, wish, wishes);
    } catch (const std::exception& error) {
      fmt::print(stderr, "penumbra: {}\n", error.what());
      status = kOneFailed;
    }
  }
  return status;
}

}  // namespace penumbra::launcher
