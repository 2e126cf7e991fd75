// The option parser against its description in options.h: separators, types, what is refused and how it is worded.
#include "runtime/base/options.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace penumbra {
namespace {

struct Refused {
  OptionError error;
  std::string piece;
};

std::vector<Refused> parse(Options& options, const char* text) {
  std::vector<Refused> refused;
  parse_options(
      options, text,
      [](OptionError error, const char* piece, std::size_t length, void* cookie) {
        static_cast<std::vector<Refused>*>(cookie)->push_back({error, std::string(piece, length)});
      },
      &refused);
  return refused;
}

TEST(Options, EverySeparatorSeparates) {
  Options options;
  EXPECT_TRUE(parse(options, "exitcode=7:multi_shot=1,junk=0 quarantine=1m").empty());
  EXPECT_EQ(options.exitcode, 7);
  EXPECT_TRUE(options.multi_shot);
  EXPECT_EQ(options.junk, 0u);
  EXPECT_EQ(options.quarantine, 1u << 20);
}

TEST(Options, LastValueWins) {
  Options options;
  EXPECT_TRUE(parse(options, "exitcode=1:exitcode=2").empty());
  EXPECT_EQ(options.exitcode, 2);
}

TEST(Options, EnumTakesExactlyItsWords) {
  Options options;
  EXPECT_TRUE(parse(options, "fault=panic_on_write").empty());
  EXPECT_EQ(options.fault, FaultReaction::kPanicOnWrite);
  ASSERT_EQ(parse(options, "fault=pani").size(), 1u);
  EXPECT_EQ(options.fault, FaultReaction::kPanicOnWrite) << "a refused value changes nothing";
}

TEST(Options, HaltOnErrorMeansPanic) {
  Options options;
  parse(options, "halt_on_error=1");
  EXPECT_EQ(options.reaction(), FaultReaction::kPanic);
}

TEST(Options, RefusedPiecesAreNamedAndTheRestStillHolds) {
  Options options;
  const auto refused = parse(options, "nonsense=1:exitcode=x:multi_shot:stack_depth=12");
  ASSERT_EQ(refused.size(), 3u);
  EXPECT_EQ(refused[0].error, OptionError::kUnknownKey);
  EXPECT_EQ(refused[1].error, OptionError::kBadValue);
  EXPECT_EQ(refused[2].error, OptionError::kNoValue);
  EXPECT_EQ(options.stack_depth, 12);
}

TEST(Options, NumbersThatDoNotFitAreRefused) {
  Options options;
  EXPECT_EQ(parse(options, "quarantine=99999999999999999999").size(), 1u);
  EXPECT_EQ(parse(options, "quarantine=99999999999999t").size(), 1u);
  EXPECT_EQ(parse(options, "quarantine=").size(), 1u);
  EXPECT_EQ(options.quarantine, 32u << 20);
}

TEST(Options, ErrorsAreOneLineThatSaysWhatToDo) {
  FixedTextBuffer<256> text;
  const std::string piece = "fault=never";
  describe_option_error(text, OptionError::kBadValue, piece.data(), piece.size());
  EXPECT_STREQ(text.c_str(), "bad value in 'fault=never': expected report|panic|panic_on_write");
}

}  // namespace
}  // namespace penumbra
