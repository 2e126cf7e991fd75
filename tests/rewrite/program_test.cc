// Functions, blocks, edges and jump tables of real modules: the structure holds, almost everything is understood, and
// damaged files are refused with a sentence.
#include "instrument/rewrite/program.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <random>

namespace penumbra::rewrite {
namespace {

const char* const kModules[] = {"/usr/bin/perl", "/usr/bin/bash", "/lib/x86_64-linux-gnu/libc.so.6",
                                "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
                                "/usr/lib/x86_64-linux-gnu/libcrypto.so.3"};

bool exists(const char* path) {
  return access(path, R_OK) == 0;
}

TEST(Program, InvariantsHoldOnRealModules) {
  Decoder decoder;
  for (const char* path : kModules) {
    if (!exists(path)) continue;
    const ElfImage image(path);
    const Program program(image, decoder);
    EXPECT_GT(program.functions().size(), 100u) << path;
    EXPECT_NO_THROW(program.validate()) << path;
  }
}

TEST(Program, AlmostEveryFunctionIsUnderstood) {
  Decoder decoder;
  for (const char* path : kModules) {
    if (!exists(path)) continue;
    const ElfImage image(path);
    const Program program(image, decoder);
    std::size_t doubted = 0;
    std::size_t jumps = 0;
    std::size_t unresolved = 0;
    for (const Function& function : program.functions()) {
      doubted += function.doubt != Doubt::kNone;
      unresolved += function.has_unresolved_jump;
    }
    for (const Block& block : program.blocks()) {
      jumps += program.form(block.first + block.count - 1).flow == Flow::kIndirectJump;
    }
    RecordProperty(std::string(path) + " doubted", static_cast<int>(doubted));
    if (std::getenv("PENUMBRA_PRINT") != nullptr) {
      std::cout << path << ": functions " << program.functions().size() << " doubted " << doubted << " blocks "
                << program.blocks().size() << " indirect jumps " << jumps << " tables " << program.tables().size()
                << " functions with an unresolved jump " << unresolved << '\n';
    }
    EXPECT_LE(doubted * 100, program.functions().size()) << path;
  }
}

TEST(Program, EveryTargetOfATableIsABlockOfAFunction) {
  if (!exists("/usr/bin/perl")) GTEST_SKIP() << "no perl here";
  Decoder decoder;
  const ElfImage image("/usr/bin/perl");
  const Program program(image, decoder);
  EXPECT_GT(program.tables().size(), 50u);
  for (const JumpTable& table : program.tables()) {
    for (const std::uint64_t target : program.targets(table)) EXPECT_NE(program.block_at(target), kNone);
  }
}

class DamagedFile : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string source = "/usr/lib/x86_64-linux-gnu/libz.so.1";
    if (!exists(source.c_str())) GTEST_SKIP() << "no libz here";
    std::ifstream in(source, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(in), {});
    path_ = ::testing::TempDir() + "penumbra_damaged." + std::to_string(getpid());
  }

  void TearDown() override { std::remove(path_.c_str()); }

  // Reads what stands in bytes; only an ImageError may come out.
  void read() {
    std::ofstream(path_, std::ios::binary).write(bytes_.data(), static_cast<std::streamsize>(bytes_.size()));
    try {
      Decoder decoder;
      const ElfImage image(path_);
      const Program program(image, decoder);
      program.validate();
    } catch (const ImageError& error) {
      EXPECT_NE(std::string(error.what()).find(path_), std::string::npos) << "the message names the file";
    }
  }

  std::vector<char> bytes_;
  std::string path_;
};

TEST_F(DamagedFile, TruncationAtAnyPlaceIsSurvived) {
  const std::vector<char> whole = bytes_;
  for (std::size_t size = 0; size < whole.size(); size += whole.size() / 40 + 1) {
    bytes_.assign(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    read();
  }
}

TEST_F(DamagedFile, RandomDamageIsSurvived) {
  const std::vector<char> whole = bytes_;
  std::mt19937 random(4711);
  for (int round = 0; round < 60; ++round) {
    bytes_ = whole;
    const std::size_t area = round % 2 == 0 ? 4096 : bytes_.size();
    for (int i = 0; i < 20; ++i) bytes_[random() % area] = static_cast<char>(random());
    read();
  }
}

TEST_F(DamagedFile, WhatIsNoElfFileIsRefusedByName) {
  bytes_.assign(1000, 'x');
  std::ofstream(path_, std::ios::binary).write(bytes_.data(), 1000);
  EXPECT_THROW(ElfImage{path_}, ImageError);
  EXPECT_THROW(ElfImage{"/nonexistent"}, ImageError);
  EXPECT_THROW(ElfImage{"/"}, ImageError);
}

}  // namespace
}  // namespace penumbra::rewrite
