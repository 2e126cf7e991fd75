#include "runtime/launcher/environment.h"

#include <errno.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <vector>

#include "runtime/base/symbolize_protocol.h"
#include "runtime/process/preload_list.h"

namespace penumbra::launcher {
namespace {

constexpr char kPreloadVariable[] = "LD_PRELOAD";
constexpr char kOptionsVariable[] = "PENUMBRA_OPTIONS";

// A path to `library` without blanks and colons. The folder must be ours alone: whoever could change the link could
// have their code run in the checked program.
std::string path_for_preload(const std::string& library) {
  if (library.find_first_of(" :") == std::string::npos) return library;
  const std::filesystem::path folder = std::filesystem::path(library).parent_path();
  const std::string own = fmt::format("/tmp/penumbra-{}", getuid());
  const std::string link = fmt::format("{}/{:x}", own, std::hash<std::string>{}(folder.string()));
  struct stat status;
  if (mkdir(own.c_str(), 0700) != 0 && errno != EEXIST) {
    throw EnvironmentError{fmt::format("cannot make {}: {}", own, strerror(errno))};
  }
  if (lstat(own.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != getuid() ||
      (status.st_mode & 077) != 0) {
    throw EnvironmentError{fmt::format("{} is not a folder of yours alone", own)};
  }
  if (symlink(folder.c_str(), link.c_str()) != 0 && errno != EEXIST) {
    throw EnvironmentError{fmt::format("cannot link {}: {}", link, strerror(errno))};
  }
  std::error_code error;
  if (std::filesystem::read_symlink(link, error) != folder) {
    throw EnvironmentError{fmt::format("{} leads elsewhere than to {}", link, folder.string())};
  }
  return link + '/' + process::kLibraryName;
}

}  // namespace

std::string own_folder() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().string();
}

std::string find_library() {
  for (const char* candidate : kLibraryFromLauncher) {
    std::error_code error;
    const auto path = std::filesystem::canonical(std::filesystem::path(own_folder()) / candidate, error);
    if (!error) return path.string();
  }
  throw EnvironmentError{fmt::format("{} is not where it belongs, beside {}", process::kLibraryName, own_folder())};
}

void remove_preload() {
  const std::size_t bytes = process::bytes_without_preload(environ);
  if (bytes == 0) return;
  std::vector<char*> storage(bytes / sizeof(char*) + 1);
  std::string others;
  for (char** entry = process::build_without_preload(environ, storage.data()); *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (text.starts_with("LD_PRELOAD=")) others = text.substr(strlen("LD_PRELOAD="));
  }
  if (others.empty()) {
    unsetenv(kPreloadVariable);
  } else {
    setenv(kPreloadVariable, others.c_str(), 1);
  }
}

void preload(const std::string& library) {
  remove_preload();
  std::string list = path_for_preload(library);
  const char* const others = getenv(kPreloadVariable);
  if (others != nullptr && *others != '\0') list += fmt::format(":{}", others);
  setenv(kPreloadVariable, list.c_str(), 1);
}

void add_options(const std::string& options) {
  if (options.empty()) return;
  const char* const before = getenv(kOptionsVariable);
  const bool has_before = before != nullptr && *before != '\0';
  setenv(kOptionsVariable, has_before ? fmt::format("{}:{}", before, options).c_str() : options.c_str(), 1);
}

}  // namespace penumbra::launcher
