// `penumbra`: starts a program under libpenumbra.so, or is one of its own tools.
//
// The program replaces this process (exec, no fork), so that its process id, terminal, input, output, signals and exit
// status are its own; the library sets the exit status where errors were reported.
//
// zone: hosted

#include <errno.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "instrument/rewrite/direct_map.h"
#include "runtime/base/options.h"
#include "runtime/launcher/bisect_command.h"
#include "runtime/launcher/cache_command.h"
#include "runtime/launcher/command_line.h"
#include "runtime/launcher/environment.h"
#include "runtime/launcher/module_cache.h"
#include "runtime/launcher/program.h"
#include "runtime/launcher/rewrite_command.h"
#include "runtime/launcher/symbolize.h"

namespace penumbra::launcher {
namespace {

// The launcher's own failures, apart from the program's statuses, as in env(1) and timeout(1).
constexpr int kOwnFailure = 125;

constexpr char kUsage[] =
#include "runtime/launcher/usage.inc"
    ;

void say(std::string_view text) {
  const std::string line = fmt::format("penumbra: {}\n", text);
  // A single write, so that lines of parallel calls do not mix. Nobody is left to tell if it fails.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

int print(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return kOwnFailure;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

std::string help_text() {
  FixedTextBuffer<16384> options;
  append_option_help(options);
  return fmt::format("{}Options:\n{}", kUsage, std::string_view(options.data(), options.size()));
}

// Comes back only with the exit status of a failure.
int execute(const std::string& path, const std::vector<std::string>& arguments) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv(path.c_str(), argv.data());
  int error = errno;
  if (error == ENOEXEC) {  // no format the kernel knows: a script of the shell, as execvp has it
    argv.front() = const_cast<char*>(path.c_str());
    argv.insert(argv.begin(), const_cast<char*>("/bin/sh"));
    execv(argv.front(), argv.data());
    error = errno;
  }
  say(fmt::format("{}: {}", arguments.front(), strerror(error)));
  return error == ENOENT ? 127 : 126;
}

// Unless rewrite=0: module files for all that the program starts with, before it starts.
void prepare(const Program& program, const std::string& given) {
  Options options;
  parse_options(options, getenv("PENUMBRA_OPTIONS"), nullptr, nullptr);
  parse_options(options, given.c_str(), nullptr, nullptr);
  if (options.rewrite == RewriteKind::kOff) return;
  // The process will find no room for the direct map, so its modules shall do without.
  rlimit space{};
  if (options.shadow == ShadowKind::kDirect && getrlimit(RLIMIT_AS, &space) == 0 &&
      space.rlim_cur < rewrite::kDirectMapBytes) {
    options.shadow = ShadowKind::kPaged;
  }
  const std::string folder = cache_folder(options);
  if (folder.empty()) {
    say("rewrite=1 needs cache=FOLDER, or HOME in the environment; nothing is rewritten");
  } else {
    prepare_modules(program.path, folder, Wishes(options), options.verbose);
  }
}

int run(const CommandLine& line) {
  const std::string& name = line.arguments.front();
  const Program program = find_program(name, getenv("PATH"));
  if (!program.native_why.empty()) {
    say(fmt::format("{} {}: it runs without Penumbra", program.path, program.native_why));
  }
  if (program.drops_preload) {
    remove_preload();
  } else {
    preload(find_library());
    if (program.native_why.empty()) prepare(program, line.options);
  }
  add_options(line.options);
  return execute(program.path, line.arguments);
}

int dispatch(const std::vector<std::string>& words) {
  CommandLine line = parse_command_line(words);
  switch (line.action) {
    case Action::kUsage:
      print(std::string_view(kUsage).substr(0, std::string_view(kUsage).find("\n\n") + 1));
      return kOwnFailure;
    case Action::kHelp: return print(help_text());
    case Action::kVersion: return print("penumbra " PENUMBRA_VERSION "\n");
    case Action::kSymbolize: return symbolize_main(line.arguments);
    case Action::kRewrite: return rewrite_main(line.arguments);
    case Action::kCache: return cache_main(line.arguments);
    case Action::kBisect: return bisect_main(line.options, line.arguments);
    case Action::kDemo: line.arguments = {own_folder() + "/penumbra-demo"}; return run(line);
    case Action::kRun: return run(line);
  }
  return kOwnFailure;
}

int guarded_main(const std::vector<std::string>& words) {
  try {
    return dispatch(words);
  } catch (const CommandLineError& error) {
    say(error.what);
  } catch (const EnvironmentError& error) {
    say(error.what);
  } catch (const ProgramError& error) {
    say(error.what);
    return error.exit_status;
  } catch (const std::exception& error) {
    say(error.what());
  }
  return kOwnFailure;
}

}  // namespace
}  // namespace penumbra::launcher

int main(int argc, char** argv) {
  return penumbra::launcher::guarded_main({argv + (argc > 0 ? 1 : 0), argv + argc});
}
