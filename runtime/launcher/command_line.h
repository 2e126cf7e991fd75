// The words behind `penumbra`, taken apart: penumbra [KEY=VALUE...] [--] PROGRAM [ARGUMENT...].
//
// A word is an option if it has a `=` and no slash before it; the first other word is the program, and everything
// behind that belongs to the program, whatever it looks like. `--` ends the options. A sub-command is one only as
// the very first word.
//
// zone: hosted
#pragma once

#include <string>
#include <vector>

namespace penumbra::launcher {

enum class Action { kUsage, kHelp, kVersion, kDemo, kSymbolize, kRewrite, kCache, kBisect, kRun };

struct CommandLine {
  Action action = Action::kUsage;
  std::string options;                 // "key=value:key=value", every piece of it known and well-formed
  std::vector<std::string> arguments;  // the program and its arguments; for a sub-command only its arguments
};

// One sentence without "penumbra:" in front and newline behind.
struct CommandLineError {
  std::string what;
};

// Throws CommandLineError where the checked process would refuse `key=value`: the same parser, and the same words.
void check_option(const std::string& word);

// `words` without argv[0]. Throws CommandLineError.
CommandLine parse_command_line(const std::vector<std::string>& words);

}  // namespace penumbra::launcher
