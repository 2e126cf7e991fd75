#include "runtime/launcher/cache_prune.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <tuple>

#include "instrument/rewriter_revision.h"

namespace penumbra::launcher {
namespace {

constexpr std::time_t kHour = 60 * 60;
constexpr std::time_t kGrace = kHour;
constexpr std::time_t kOthersStay = 7 * 24 * kHour;
// A use is written down again when the last one is older: well within the grace.
constexpr std::time_t kUseStep = kGrace / 2;

constexpr std::string_view kEnding = ".module";
// Of a file that is being written: a dot and what mkostemp() made.
constexpr std::size_t kTemporaryBytes = 7;

int open_folder(const std::string& path) {
  return open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

class Folder {
 public:
  explicit Folder(const std::string& path) : fd_(open_folder(path)) {}
  ~Folder() {
    if (fd_ >= 0) close(fd_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  bool is_open() const { return fd_ >= 0; }
  bool try_lock() const { return flock(fd_, LOCK_EX | LOCK_NB) == 0; }
  void remove(std::vector<CacheFile>& files) const {
    std::erase_if(files, [&](const CacheFile& file) { return unlinkat(fd_, file.name.c_str(), 0) != 0; });
  }

 private:
  int fd_;
};

bool is_used_within(const CacheFile& file, std::time_t now, std::time_t span) {
  return file.used_at > now - span;
}

}  // namespace

bool parse_cache_name(std::string_view name, CacheFile& file) {
  if (name.empty() || std::string_view("0123456789abcdef").find(name.front()) == name.npos) return false;
  file.name = name;
  file.is_half_made = !name.ends_with(kEnding);
  if (file.is_half_made) {
    if (name.size() < kTemporaryBytes || name[name.size() - kTemporaryBytes] != '.') return false;
    name.remove_suffix(kTemporaryBytes);
    if (!name.ends_with(kEnding)) return false;
  }
  file.is_ours = name.ends_with(PENUMBRA_MODULE_SUFFIX);
  return true;
}

std::vector<CacheFile> choose_victims(std::vector<CacheFile> files, std::uint64_t limit_bytes, std::time_t now) {
  std::uint64_t kept = 0;
  for (const CacheFile& file : files) kept += file.bytes;
  std::erase_if(files, [&](const CacheFile& file) { return is_used_within(file, now, kGrace); });  // P1
  const auto goes_anyway = [&](const CacheFile& file) {
    return file.is_half_made || (!file.is_ours && !is_used_within(file, now, kOthersStay));
  };
  std::ranges::sort(files, {}, [&](const CacheFile& file) {
    return std::tuple(!goes_anyway(file), file.is_ours, file.used_at, file.name);
  });
  const auto stays = std::ranges::find_if(files, [&](const CacheFile& file) {
    if (!goes_anyway(file) && kept <= limit_bytes) return true;
    kept -= file.bytes;
    return false;
  });
  files.erase(stays, files.end());
  return files;
}

std::vector<CacheFile> list_cache(const std::string& folder) {
  std::vector<CacheFile> files;
  DIR* const entries = opendir(folder.c_str());
  if (entries == nullptr) return files;
  while (const dirent* entry = readdir(entries)) {
    CacheFile file;
    struct stat status {};
    if (!parse_cache_name(entry->d_name, file) ||
        fstatat(dirfd(entries), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(status.st_mode)) {
      continue;
    }
    file.bytes = static_cast<std::uint64_t>(status.st_blocks) * 512;
    file.used_at = std::max(status.st_atime, status.st_mtime);
    files.push_back(std::move(file));
  }
  closedir(entries);
  return files;
}

std::vector<CacheFile> prune_cache(const std::string& path, std::uint64_t limit_bytes) {
  const Folder folder(path);
  if (!folder.is_open() || !folder.try_lock()) return {};
  std::vector<CacheFile> victims = choose_victims(list_cache(path), limit_bytes, std::time(nullptr));
  folder.remove(victims);
  return victims;
}

std::vector<CacheFile> clear_cache(const std::string& path) {
  const Folder folder(path);
  if (!folder.is_open()) return {};
  std::vector<CacheFile> files = list_cache(path);
  folder.remove(files);
  return files;
}

bool note_use(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return false;
  if (std::max(status.st_atime, status.st_mtime) <= std::time(nullptr) - kUseStep) {
    // The time of last change stays: by it the library knows that the file is as its writer left it.
    const timespec times[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
    utimensat(AT_FDCWD, path.c_str(), times, 0);
  }
  return true;
}

CacheUse::CacheUse(const std::string& folder) : fd_(open_folder(folder)) {
  if (fd_ >= 0) flock(fd_, LOCK_SH);
}

CacheUse::~CacheUse() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace penumbra::launcher
