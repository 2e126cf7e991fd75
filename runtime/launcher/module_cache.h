// The cache of module files: one folder of the user's own, files named by build-id or, where there is none, by contents.
//
// Files are written whole or not at all (instrument/rewrite/module_file.h), so that parallel launchers and a full disk
// leave nothing half-written behind.
//
// zone: hosted
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "instrument/rewrite/relocator_x86_64.h"
#include "runtime/base/module_key.h"
#include "runtime/base/options.h"

namespace penumbra::launcher {

// cache=, else $XDG_CACHE_HOME/penumbra, else ~/.cache/penumbra; empty where none of them is set.
std::string cache_folder(const Options& options);

struct RewriteResult {
  rewrite::RewriteStats stats;
  rewrite::Ledger ledger;
  std::uint64_t file_bytes = 0;
};

// What module files are to check, from the options of a run: check=, exact=, optout= and shadow=paged. Reads the list of optout=FILE;
// throws std::runtime_error where that cannot be done.
class Wishes {
 public:
  Wishes() = default;
  explicit Wishes(const Options& options);

  rewrite::RewriteOptions for_module(const std::string& file) const;
  // What the cache may hold, in bytes.
  std::uint64_t cache_limit() const { return options_.cache_limit; }
  // The part of the name of the module's file that stands for them.
  std::string key(const std::string& file) const;

 private:
  OptOutList list() const { return {text_.data(), text_.data() + text_.size()}; }

  Options options_;
  std::string text_;  // the list's
};

// Rewrites one ELF file; writes its module file to `folder` unless that is empty. Throws rewrite::ImageError,
// std::system_error.
RewriteResult rewrite_file(const std::string& file, const std::string& folder, const rewrite::RewriteOptions& options,
                           const std::string& key);

// A function beside its rewritten copy (instrument/rewrite/listing.h). Throws rewrite::ImageError where there is no such
// function.
std::string disassemble_function(const std::string& file, const std::string& name,
                                 const rewrite::RewriteOptions& options);

// Makes the folder, then a module file for the program and each of its libraries that has none yet, on all CPUs. Progress
// goes to stderr if that is a terminal (a program's output stays its own), else one line if `verbose`; a file that cannot be
// rewritten runs unchecked and is named there.
void prepare_modules(const std::string& program, const std::string& folder, const Wishes& wishes, bool verbose);

// What a program starts with and is rewritten by default: its executable and libraries.
std::vector<std::string> modules_of(const std::string& program);
// The functions of a module as an optout list names them, in their order.
std::vector<std::string> functions_of(const std::string& file);

// The same for these files alone, silently. A file that cannot be rewritten gets an empty module file, which nobody
// believes and which says that there is no point in asking again.
void prepare_files(std::vector<std::string> files, const std::string& folder, const Wishes& wishes);

}  // namespace penumbra::launcher
