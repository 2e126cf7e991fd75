// Writing module files: whole or not at all.
//
// A file is written under a temporary name in its folder, checksummed, synced, given the time that its header says, and
// renamed. A reader therefore sees a complete file or none; two writers of the same module write the same code.
//
// zone: hosted
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "instrument/rewrite/relocator_x86_64.h"

namespace penumbra::rewrite {

// The bytes of the module file. `identity` is what the cache knows the module by; `options` are ModuleOption bits.
std::vector<std::uint8_t> module_bytes(const RewrittenModule& module, const Program& program,
                                       const std::string& identity, std::uint64_t options);

// Writes what module_bytes() made. Throws std::system_error when the file cannot be written; nothing is left behind then.
void write_module_file(const std::string& path, const std::vector<std::uint8_t>& bytes);

// Checksum of a whole module file with the header in place.
std::uint64_t checksum_of(const std::vector<std::uint8_t>& file);

}  // namespace penumbra::rewrite
