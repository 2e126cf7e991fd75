#include "runtime/launcher/program.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <regex>
#include <sstream>

#include "runtime/process/program_file.h"

namespace penumbra::launcher {
namespace {

using process::ProgramFile;
using process::ProgramKind;

constexpr int kNotFound = 127;
constexpr int kNotExecutable = 126;
// What execvp searches when PATH is not set.
constexpr char kDefaultPath[] = "/bin:/usr/bin";

// 0 if `path` can be executed, else the errno that execve would give.
int why_not_executable(const std::string& path) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0) return errno;
  if (S_ISDIR(status.st_mode)) return EISDIR;
  if (!S_ISREG(status.st_mode)) return EACCES;
  return access(path.c_str(), X_OK) == 0 ? 0 : errno;
}

[[noreturn]] void give_up(const std::string& name, int error) {
  const bool is_missing = error == ENOENT || error == ENOTDIR || error == ENAMETOOLONG || error == ELOOP;
  throw ProgramError{fmt::format("{}: {}", name, strerror(error)), is_missing ? kNotFound : kNotExecutable};
}

std::string search(const std::string& name, const char* path_list) {
  if (name.find('/') != std::string::npos) {
    if (const int error = why_not_executable(name)) give_up(name, error);
    return name;
  }
  int denied = 0;
  std::istringstream folders(path_list != nullptr ? path_list : kDefaultPath);
  for (std::string folder; !name.empty() && std::getline(folders, folder, ':');) {
    const std::string candidate = folder.empty() ? "./" + name : folder + '/' + name;
    const int error = why_not_executable(candidate);
    if (error == 0) return candidate;
    if (error == EACCES) denied = error;
  }
  if (denied != 0) give_up(name, denied);
  throw ProgramError{fmt::format("{}: command not found", name), kNotFound};
}

// What stands behind -S in the argument of a #! line: "-S program", "-ivSprogram", "--split-string=program".
std::optional<std::string> behind_split_option(const std::string& argument) {
  static const std::regex pattern("(?:-[iv0]*S|--split-string=?)(.*)");
  std::smatch match;
  if (!std::regex_match(argument, match, pattern)) return std::nullopt;
  return match[1].str();
}

// The program that `env` with this argument of a #! line will run; nothing where it names none.
std::optional<std::string> program_of_env(const std::string& argument) {
  const auto split = behind_split_option(argument);
  if (!split) {  // the whole rest of the line is one word
    const bool is_program = !argument.empty() && argument.front() != '-' && argument.find('=') == std::string::npos;
    return is_program ? std::optional(argument) : std::nullopt;
  }
  std::istringstream words(*split);
  for (std::string word; words >> word;) {
    if (word == "-u" || word == "--unset" || word == "-C" || word == "--chdir") {
      words >> word;  // and its value
    } else if (word.front() != '-' && word.find('=') == std::string::npos) {
      return word;
    }
  }
  return std::nullopt;
}

bool is_env(const std::string& path) {
  return path == "env" || path.ends_with("/env");
}

ProgramFile inspect(const std::string& path) {
  ProgramFile program;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return program;
  process::inspect_program(fd, program);
  close(fd);
  return program;
}

// What runs in the end when `path` is executed.
ProgramFile inspect_through_scripts(std::string path, const char* path_list) {
  ProgramFile program = inspect(path);
  for (int depth = 0; program.kind == ProgramKind::kScript && depth < process::kScriptDepth; ++depth) {
    path = program.interpreter;
    if (is_env(path)) {
      if (const auto name = program_of_env(program.argument)) {
        try {
          path = search(*name, path_list);
        } catch (const ProgramError&) {
          return ProgramFile{};  // env itself will say so, in its own words
        }
      }
    }
    program = inspect(path);
  }
  return program;
}

std::string reason_to_run_native(const ProgramFile& program) {
  switch (program.kind) {
    case ProgramKind::kSanitizer: return fmt::format("was built with {}", program.sanitizer);
    case ProgramKind::kStatic: return "is statically linked";
    case ProgramKind::kForeign: return "is no 64-bit x86-64 program";
    case ProgramKind::kUnknown:
    case ProgramKind::kDynamic:
    case ProgramKind::kScript:
    case ProgramKind::kOther: break;
  }
  return program.changes_id ? "is set-user-ID or set-group-ID" : "";
}

}  // namespace

Program find_program(const std::string& name, const char* path_list) {
  Program result;
  result.path = search(name, path_list);
  const ProgramFile program = inspect_through_scripts(result.path, path_list);
  result.native_why = reason_to_run_native(program);
  result.drops_preload = program.drops_preload();
  return result;
}

}  // namespace penumbra::launcher
