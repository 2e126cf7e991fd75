// The cache of module files: one folder of the user's own, files named by build-id.
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

namespace penumbra::launcher {

// $XDG_CACHE_HOME/penumbra, else ~/.cache/penumbra; empty where neither variable is set.
std::string default_cache_folder();

struct RewriteResult {
  rewrite::RewriteStats stats;
  rewrite::Ledger ledger;
  std::uint64_t file_bytes = 0;
};

// Rewrites one ELF file; writes its module file to `folder` unless that is empty. Throws rewrite::ImageError,
// std::system_error.
RewriteResult rewrite_file(const std::string& file, const std::string& folder,
                           const rewrite::RewriteOptions& options);

// A function beside its rewritten copy (instrument/rewrite/listing.h). Throws rewrite::ImageError where there is no such
// function.
std::string disassemble_function(const std::string& file, const std::string& name,
                                 const rewrite::RewriteOptions& options);

// Makes the folder, then a module file for the program and each of its libraries that has none yet, on all CPUs. Progress
// goes to stderr if that is a terminal (a program's output stays its own), else one line if `verbose`; a file that cannot be
// rewritten runs unchecked and is named there.
void prepare_modules(const std::string& program, const std::string& folder, bool verbose);

// The same for these files alone, silently. A file that cannot be rewritten gets an empty module file, which nobody
// believes and which says that there is no point in asking again.
void prepare_files(std::vector<std::string> files, const std::string& folder);

}  // namespace penumbra::launcher
