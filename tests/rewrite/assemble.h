// Small modules from assembly text, for hazards that real modules show too seldom.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

namespace penumbra::rewrite {

// A shared library made from assembly (Intel syntax), removed again with the object.
class Assembled {
 public:
  explicit Assembled(const std::string& text) {
    static int count = 0;
    path_ = ::testing::TempDir() + "penumbra_asm." + std::to_string(getpid()) + "." + std::to_string(count++);
    const std::string source = path_ + ".s";
    std::ofstream(source) << ".intel_syntax noprefix\n.text\n" << text << "\n.section .note.GNU-stack\n";
    const std::string command = "gcc -shared -nostdlib -o '" + path_ + ".so' '" + source + "'";
    ok_ = std::system(command.c_str()) == 0;
    std::remove(source.c_str());
    path_ += ".so";
    EXPECT_TRUE(ok_) << "the assembler refused\n" << text;
  }

  ~Assembled() { std::remove(path_.c_str()); }
  Assembled(const Assembled&) = delete;
  Assembled& operator=(const Assembled&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool ok_ = false;
};

// A function with call frame information, local unless `global`.
inline std::string asm_function(const std::string& name, const std::string& body, bool global = false) {
  return (global ? ".globl " + name + "\n" : "") + ".type " + name + ",@function\n" + name + ":\n.cfi_startproc\n" +
         body + "\n.cfi_endproc\n.size " + name + ", .-" + name + "\n";
}

}  // namespace penumbra::rewrite
