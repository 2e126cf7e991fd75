// Which word is an option, a sub-command, the program; and the words for each mistake.
#include "runtime/launcher/command_line.h"

#include <gtest/gtest.h>

namespace penumbra::launcher {
namespace {

using Words = std::vector<std::string>;

std::string error_of(const Words& words) {
  try {
    parse_command_line(words);
  } catch (const CommandLineError& error) {
    return error.what;
  }
  return "none";
}

TEST(CommandLine, OptionsEndAtTheProgramWhoseArgumentsAreItsOwn) {
  const CommandLine line = parse_command_line({"fault=panic", "junk=0", "prog", "a=b", "--help", "--"});
  EXPECT_EQ(line.action, Action::kRun);
  EXPECT_EQ(line.options, "fault=panic:junk=0");
  EXPECT_EQ(line.arguments, (Words{"prog", "a=b", "--help", "--"}));
}

TEST(CommandLine, TwoDashesOrASlashMeanAProgram) {
  EXPECT_EQ(parse_command_line({"--", "symbolize"}).arguments, Words{"symbolize"});
  EXPECT_EQ(parse_command_line({"--", "symbolize"}).action, Action::kRun);
  EXPECT_EQ(parse_command_line({"./symbolize"}).action, Action::kRun);
  EXPECT_EQ(parse_command_line({"dir/a=b", "x"}).arguments, (Words{"dir/a=b", "x"}));
  EXPECT_EQ(parse_command_line({"--", "a=b"}).arguments, Words{"a=b"});
  EXPECT_EQ(parse_command_line({"--", "--help"}).arguments, Words{"--help"});
}

TEST(CommandLine, ASubCommandIsOneOnlyAsTheFirstWord) {
  const CommandLine line = parse_command_line({"symbolize", "file", "--x"});
  EXPECT_EQ(line.action, Action::kSymbolize);
  EXPECT_EQ(line.arguments, (Words{"file", "--x"}));
  EXPECT_EQ(parse_command_line({"junk=0", "symbolize"}).action, Action::kRun);
  EXPECT_EQ(parse_command_line({"cache", "--clear"}).action, Action::kCache);
  EXPECT_EQ(parse_command_line({"--", "cache"}).action, Action::kRun);
}

TEST(CommandLine, ASlashInTheValueDoesNotMakeAProgram) {
  EXPECT_EQ(parse_command_line({"log_path=/tmp/x.%p", "ls"}).options, "log_path=/tmp/x.%p");
}

TEST(CommandLine, SeveralOptionsFitInOneWordAsInTheEnvironment) {
  EXPECT_EQ(parse_command_line({"junk=0:exitcode=3", "ls"}).options, "junk=0:exitcode=3");
}

TEST(CommandLine, MistakesAreNamedInOneLine) {
  EXPECT_EQ(error_of({"nokey=1", "ls"}), "unknown option 'nokey'; `penumbra --help` lists them");
  EXPECT_EQ(error_of({"fault=maybe", "ls"}), "bad value in 'fault=maybe': expected report|panic|panic_on_write");
  EXPECT_EQ(error_of({"--nosuch", "ls"}), "unknown option '--nosuch'; `penumbra --help` lists them");
  EXPECT_EQ(error_of({"junk=0"}), "no program to run; `penumbra --help` tells more");
  EXPECT_EQ(error_of({"--"}), "no program to run; `penumbra --help` tells more");
  EXPECT_EQ(error_of({"--demo", "ls"}), "nothing may follow --demo");
}

TEST(CommandLine, NoWordsAskForTheUsage) {
  EXPECT_EQ(parse_command_line({}).action, Action::kUsage);
}

}  // namespace
}  // namespace penumbra::launcher
