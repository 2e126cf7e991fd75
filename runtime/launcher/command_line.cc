#include "runtime/launcher/command_line.h"

#include <fmt/format.h>

#include "runtime/base/options.h"
#include "runtime/base/symbolize_protocol.h"

namespace penumbra::launcher {
namespace {

bool is_option(const std::string& word) {
  const std::size_t equals = word.find('=');
  return equals != std::string::npos && word.find('/') > equals;
}

// Sub-commands that take all that follows.
struct Tool {
  const char* name;
  Action action;
};
constexpr Tool kTools[] = {
    {"rewrite", Action::kRewrite}, {"cache", Action::kCache}, {kSymbolizeCommand, Action::kSymbolize}};

}  // namespace

void check_option(const std::string& word) {
  Options scratch;
  parse_options(
      scratch, word.c_str(),
      [](OptionError error, const char* piece, std::size_t length, void*) {
        FixedTextBuffer<1024> text;
        describe_option_error(text, error, piece, length);
        throw CommandLineError{text.c_str()};
      },
      nullptr);
}

CommandLine parse_command_line(const std::vector<std::string>& words) {
  CommandLine line;
  if (words.empty()) return line;
  for (const Tool& tool : kTools) {
    if (words.front() != tool.name) continue;
    line.action = tool.action;
    line.arguments.assign(words.begin() + 1, words.end());
    return line;
  }
  const bool bisects = words.front() == "bisect";
  auto word = words.begin() + (bisects ? 1 : 0);
  for (; word != words.end(); ++word) {
    if (is_option(*word)) {
      check_option(*word);
      if (!line.options.empty()) line.options += ':';
      line.options += *word;
      continue;
    }
    if (*word == "--") {
      ++word;
      break;
    }
    if (word->empty() || word->front() != '-') break;
    if (*word == "--help" || *word == "-h") {
      line.action = Action::kHelp;
    } else if (*word == "--version") {
      line.action = Action::kVersion;
    } else if (*word == "--demo") {
      line.action = Action::kDemo;
    } else {
      throw CommandLineError{fmt::format("unknown option '{}'; `penumbra --help` lists them", *word)};
    }
    if (word + 1 != words.end()) throw CommandLineError{fmt::format("nothing may follow {}", *word)};
    return line;
  }
  if (word == words.end()) throw CommandLineError{"no program to run; `penumbra --help` tells more"};
  line.action = bisects ? Action::kBisect : Action::kRun;
  line.arguments.assign(word, words.end());
  return line;
}

}  // namespace penumbra::launcher
