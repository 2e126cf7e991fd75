// How much address space a process needs for checks that look at the direct shadow map by themselves; with less, its
// modules must be those whose checks call out (RewriteOptions::calls_out).
//
// zone: hosted
#pragma once

#include <cstdint>

#include "shadow/encoding.h"

namespace penumbra::rewrite {

inline constexpr std::uint64_t kDirectMapBytes = shadow::kHighShadowEnd - shadow::kLowShadowBegin;

}  // namespace penumbra::rewrite
