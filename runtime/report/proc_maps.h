// The process's mappings as the kernel lists them, read without malloc or stdio.
//
// zone: signal-safe
#pragma once

#include <cstddef>
#include <cstdint>

namespace penumbra::report {

struct Mapping {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::uint64_t offset = 0;
  bool readable = false;
  bool writable = false;
  bool executable = false;
  char path[512] = {};  // empty for anonymous memory, "[stack]" and the like for the kernel's own names
};

// Takes the buffers that listing uses; once, at start. Without them, or when all are in use, a small one on the stack
// serves, which leaves out lines that do not fit.
void reserve_mapping_buffers();

// Calls `visit` for each mapping in ascending order until it answers false. False when the list cannot be read
// (no /proc, sealed). Not atomic: mappings may change while they are listed.
bool for_each_mapping(bool (*visit)(const Mapping& mapping, void* cookie), void* cookie);

// Fills in `mapping` from one line of /proc/<pid>/maps, without its newline.
bool parse_mapping(const char* line, std::size_t length, Mapping& mapping);

}  // namespace penumbra::report
