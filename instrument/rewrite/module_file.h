// Writing module files: whole or not at all.
//
// A file is written under a temporary name in its folder, checksummed, synced, given the time that its header says, and
// renamed. A reader therefore sees a complete file or none; two writers of the same module write the same code.
//
// zone: hosted
#pragma once

#include <cstdint>
#include <string>

#include "instrument/rewrite/elf_image.h"
#include "instrument/rewrite/rewritten_module.h"

namespace penumbra::rewrite {

struct ModuleFileFacts {
  std::string identity;       // what the cache knows the module by
  std::uint64_t options = 0;  // ModuleOption bits
};

std::uint64_t module_file_bytes(const RewrittenModule& module, const ElfImage& image);

// Throws std::system_error when the file cannot be written; nothing is left behind then. Needs little memory: the file is
// summed and written as it is made. `image` is what the module was made from.
void write_module_file(const std::string& path, const RewrittenModule& module, const ElfImage& image,
                       const ModuleFileFacts& facts);

}  // namespace penumbra::rewrite
