// How much memory the control groups of this process allow.
//
// A group is limited by itself and by every group above it: version 2 says so in memory.max of each, version 1 in
// memory.limit_in_bytes below its memory controller. In a container the groups above are out of sight, and the root
// that is seen is the container's own.
//
// zone: signal-safe
#pragma once

#include <cstdint>

namespace penumbra::os {

inline constexpr std::uint64_t kNoMemoryLimit = ~std::uint64_t{0};

// Bytes; kNoMemoryLimit where there is no limit or nothing can be read. Reads a handful of files.
std::uint64_t cgroup_memory_limit();
// The same for a list of groups and a mounted hierarchy elsewhere. Paths of up to about 4000 bytes.
std::uint64_t cgroup_memory_limit(const char* self_cgroup, const char* root);

}  // namespace penumbra::os
