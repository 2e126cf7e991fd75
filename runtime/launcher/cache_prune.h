// What leaves the cache of module files: nobody else ever takes anything out of it, and every rewriter adds files of its own.
//
// Only files with a module file's name are looked at, those that a writer left half-made included. Each was used when it was
// written, when a process read it last, or when a launcher found it there (note_use()), whichever is later.
//
//  P1 what was used within the last hour stays, whatever the limit: a program that is starting may want it.
//  P2 half-made files go, and files of other rewriters that nobody used for a week.
//  P3 then the least recently used go until the limit is kept, those of other rewriters first.
//
// Processes that have a file mapped keep it; one that comes later finds none and has it made again, or, for the modules it
// starts with and without a launcher, runs without it that time. Launchers that look for files and one that prunes
// take turns by a lock on the folder; where the kernel has no such locks (some network file systems) P1 alone keeps them apart.
//
// zone: hosted
#pragma once

#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

namespace penumbra::launcher {

struct CacheFile {
  std::string name;
  std::uint64_t bytes = 0;  // of disk
  std::time_t used_at = 0;
  bool is_half_made = false;
  bool is_ours = false;  // made by the rewriter of this launcher
};

// Does this name belong to the cache? Fills the two facts that a name tells.
bool parse_cache_name(std::string_view name, CacheFile& file);

// The rules, and nothing else: which of these files go.
std::vector<CacheFile> choose_victims(std::vector<CacheFile> files, std::uint64_t limit_bytes, std::time_t now);

// What lies in the folder; nothing where it cannot be read. Symbolic links and folders are left out.
std::vector<CacheFile> list_cache(const std::string& folder);

// Takes the files out that the rules name; what cannot be removed stays, without a word. Returns those that went. Does
// nothing while another process prunes or looks for files.
std::vector<CacheFile> prune_cache(const std::string& folder, std::uint64_t limit_bytes);

// Takes out all of them.
std::vector<CacheFile> clear_cache(const std::string& folder);

// Is the module file there? If so it counts as used now.
bool note_use(const std::string& path);

// Held while files are looked for that are to be used afterwards; waits while another process prunes.
class CacheUse {
 public:
  explicit CacheUse(const std::string& folder);
  ~CacheUse();
  CacheUse(const CacheUse&) = delete;
  CacheUse& operator=(const CacheUse&) = delete;

 private:
  int fd_;
};

}  // namespace penumbra::launcher
