// The client's side of runtime/base/symbolize_protocol.h: what it asks, and what it makes of answers.
#include "runtime/report/symbolizer.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace penumbra::report {
namespace {

class SymbolizerTest : public testing::Test {
 protected:
  SymbolizerTest() {
    name_ = names_->add(0x1234, true);
    name_->function = "sub_00001200";
    name_->offset = 0x34;
    name_->module_path = "/usr/bin/prog";
    name_->module_offset = 0x1234;
    name_->build_id = "0123abcd";
  }

  void take(const std::string& answer) { take_answer(*names_, *name_, answer.data(), answer.size()); }

  std::unique_ptr<NameTable> names_ = std::make_unique<NameTable>();
  CodeName* name_;
};

TEST_F(SymbolizerTest, AReturnAddressIsAskedForOneByteEarlier) {
  FixedTextBuffer<256> request;
  ASSERT_TRUE(append_request(request, *name_));
  EXPECT_STREQ(request.c_str(), "/usr/bin/prog\t0123abcd\t1233\n");
  request.clear();
  name_->is_return_address = false;
  name_->build_id = nullptr;
  ASSERT_TRUE(append_request(request, *name_));
  EXPECT_STREQ(request.c_str(), "/usr/bin/prog\t\t1234\n");
}

TEST_F(SymbolizerTest, WhatHasNoFileIsNotAskedFor) {
  FixedTextBuffer<256> request;
  name_->module_path = "linux-vdso.so.1";
  EXPECT_FALSE(append_request(request, *name_));
  name_->module_path = "/tmp/two\nlines";
  EXPECT_FALSE(append_request(request, *name_));
  name_->module_path = nullptr;
  EXPECT_FALSE(append_request(request, *name_));
}

TEST_F(SymbolizerTest, OneFrameGivesSymbolDemangledNameAndLine) {
  take("_Z3addii\tadd(int, int)\t32\t80\tsrc/a.cc\t17\n");
  EXPECT_STREQ(name_->function, "_Z3addii");
  EXPECT_EQ(name_->offset, 0x33u) << "the byte that was subtracted is added again";
  EXPECT_EQ(name_->bytes, 0x80u);
  ASSERT_EQ(name_->source_count, 1u);
  EXPECT_STREQ(name_->source[0].function, "add(int, int)");
  EXPECT_STREQ(name_->source[0].file, "src/a.cc");
  EXPECT_EQ(name_->source[0].line, 17u);
}

TEST_F(SymbolizerTest, InlinedFunctionsComeBeforeTheOneThatHoldsThem) {
  take("_Z3addii\tadd(int, int)\t32\t80\tsrc/a.h\t3\nmain\t\t32\t80\tsrc/a.cc\t20\n");
  EXPECT_STREQ(name_->function, "main");
  ASSERT_EQ(name_->source_count, 2u);
  EXPECT_STREQ(name_->source[0].function, "add(int, int)");
  EXPECT_STREQ(name_->source[1].function, "main");
  EXPECT_EQ(name_->source[1].line, 20u);
}

TEST_F(SymbolizerTest, ADeepNestKeepsTheInnermostAndTheFunctionItself) {
  std::string answer;
  for (int i = 0; i < 10; ++i) answer += "in" + std::to_string(i) + "\t\t1\t80\tf.c\t" + std::to_string(i) + "\n";
  take(answer + "outer\t\t1\t80\tf.c\t99\n");
  ASSERT_EQ(name_->source_count, kMaxSourceFrames);
  EXPECT_STREQ(name_->source[0].function, "in0");
  EXPECT_STREQ(name_->source[kMaxSourceFrames - 1].function, "outer");
  EXPECT_STREQ(name_->function, "outer");
}

TEST_F(SymbolizerTest, AnEmptyAnswerChangesNothing) {
  take("");
  EXPECT_STREQ(name_->function, "sub_00001200");
  EXPECT_EQ(name_->source_count, 0u);
}

TEST_F(SymbolizerTest, ALineWithoutASymbolKeepsTheLocalName) {
  take("\t\t\t\tsrc/a.c\t9\n");
  EXPECT_STREQ(name_->function, "sub_00001200");
  EXPECT_EQ(name_->offset, 0x34u);
  EXPECT_STREQ(name_->source[0].file, "src/a.c");
}

TEST_F(SymbolizerTest, AVersionIsNoPartOfAName) {
  take("memcpy@@GLIBC_2.14\t\t0\t10\t\t\n");
  EXPECT_STREQ(name_->function, "memcpy");
  EXPECT_EQ(name_->source[0].file, nullptr);
}

TEST_F(SymbolizerTest, LinesThatAreNoFramesAreSkipped) {
  take("what is this\nmain\t\t1\t80\tf.c\t1\n");
  EXPECT_EQ(name_->source_count, 1u);
  EXPECT_STREQ(name_->function, "main");
}

}  // namespace
}  // namespace penumbra::report
