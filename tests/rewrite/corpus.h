// Real code for tests of the rewriter: the executable sections of modules of this system.
#pragma once

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <span>
#include <string>
#include <vector>

namespace penumbra::rewrite {

struct CodeSection {
  std::string module;
  std::vector<std::uint8_t> bytes;
  std::uint64_t address = 0;
};

// The .text of each file that exists; a system without one of them tests the others.
inline std::vector<CodeSection> code_of(const std::vector<std::string>& files) {
  std::vector<CodeSection> sections;
  for (const std::string& file : files) {
    std::ifstream in(file, std::ios::binary);
    std::vector<char> image((std::istreambuf_iterator<char>(in)), {});
    if (image.size() < sizeof(Elf64_Ehdr)) continue;
    const auto* header = reinterpret_cast<const Elf64_Ehdr*>(image.data());
    const auto* table = reinterpret_cast<const Elf64_Shdr*>(image.data() + header->e_shoff);
    const char* names = image.data() + table[header->e_shstrndx].sh_offset;
    for (unsigned i = 0; i < header->e_shnum; ++i) {
      if (std::strcmp(names + table[i].sh_name, ".text") != 0) continue;
      const auto* begin = reinterpret_cast<const std::uint8_t*>(image.data() + table[i].sh_offset);
      sections.push_back({file, {begin, begin + table[i].sh_size}, table[i].sh_addr});
    }
  }
  return sections;
}

inline std::vector<CodeSection> small_corpus() {
  return code_of({"/lib/x86_64-linux-gnu/libc.so.6", "/usr/bin/perl", "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
                  "/usr/lib/x86_64-linux-gnu/libstdc++.so.6", "/usr/lib/x86_64-linux-gnu/libgmp.so.10",
                  "/usr/lib/x86_64-linux-gnu/libz.so.1", "/usr/bin/bash"});
}

// Calls visit(bytes from the instruction to the end of the section, address) for every instruction of a linear sweep
// that `length_of` finds the ends of; a length of 0 skips one byte.
template <class LengthOf, class Visit>
void sweep(const CodeSection& section, LengthOf length_of, Visit visit) {
  std::span<const std::uint8_t> rest(section.bytes);
  std::uint64_t address = section.address;
  while (!rest.empty()) {
    const std::size_t length = length_of(rest);
    if (length != 0) visit(rest, address);
    const std::size_t step = length == 0 ? 1 : length;
    rest = rest.subspan(step);
    address += step;
  }
}

}  // namespace penumbra::rewrite
