// The list of functions that are left out, line by line, and which wishes make another module file.
#include "runtime/base/module_key.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace penumbra {
namespace {

OptOutList list_of(const char* text) {
  return {text, text + std::strlen(text)};
}

std::string key(const Options& options, const char* text, const char* path) {
  FixedTextBuffer<128> out;
  append_module_key(out, options, list_of(text), path);
  return out.c_str();
}

TEST(ModuleKey, LinesSayModuleFunctionAndKinds) {
  const OptOutList list =
      list_of("# why\n\n  libz.so.1 inflate # rw\na.out 0x1130 r\n* * w\nalone\na b c\na b r d\nlast one rw");
  const char* at = list.begin;
  OptOutLine line;
  ASSERT_TRUE(next_line(list, at, line));
  EXPECT_TRUE(is_word(line.module, "libz.so.1") && is_word(line.function, "inflate") && line.reads && line.writes);
  ASSERT_TRUE(next_line(list, at, line));
  EXPECT_TRUE(is_word(line.function, "0x1130") && line.reads && !line.writes);
  ASSERT_TRUE(next_line(list, at, line));
  EXPECT_TRUE(is_word(line.module, "*") && !line.reads && line.writes);
  ASSERT_TRUE(next_line(list, at, line)) << "lines of another form are skipped";
  EXPECT_TRUE(is_word(line.module, "last") && line.reads && line.writes);
  EXPECT_FALSE(next_line(list, at, line));
}

TEST(ModuleKey, AModuleIsNamedByItsFileNameAlone) {
  const OptOutList list = list_of("libz.so.1 f");
  const char* at = list.begin;
  OptOutLine line;
  ASSERT_TRUE(next_line(list, at, line));
  EXPECT_TRUE(names_module(line, "/usr/lib/libz.so.1"));
  EXPECT_TRUE(names_module(line, "libz.so.1"));
  EXPECT_FALSE(names_module(line, "/usr/lib/libz.so.1.2"));
}

TEST(ModuleKey, OnlyWhatChangesAModulesFileChangesItsName) {
  const Options usual;
  EXPECT_EQ(key(usual, "", "/bin/a"), "");
  EXPECT_EQ(key(usual, "b f\n", "/bin/a"), "") << "a list about another module";
  EXPECT_NE(key(usual, "a f\n", "/bin/a"), "");
  EXPECT_NE(key(usual, "a f\n", "/bin/a"), key(usual, "a g\n", "/bin/a"));
  EXPECT_NE(key(usual, "a f\n", "/bin/a"), key(usual, "a f r\n", "/bin/a"));
  EXPECT_EQ(key(usual, "a f\n", "/bin/a"), key(usual, "# why\nb x\na f rw\n", "/bin/a"));
  Options writes;
  writes.check = CheckKind::kWrites;
  writes.exact = true;
  EXPECT_EQ(key(writes, "", "/bin/a"), ".w.exact");
}

}  // namespace
}  // namespace penumbra
