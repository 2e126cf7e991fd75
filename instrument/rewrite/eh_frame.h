// Functions as .eh_frame tells them: where each begins and ends, where exceptions land, and which are signal frames.
//
// FDEs cover 97 to 99 % of the text of C and C++ programs, stripped or not; what they do not cover is hand-written
// assembly, which stays as it is. A cold part split off by the compiler is an FDE of its own.
//
// zone: hosted
#pragma once

#include <cstdint>
#include <vector>

#include "instrument/rewrite/elf_image.h"

namespace penumbra::rewrite {

struct FrameRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t lsda = 0;        // address of its exception table, 0 without
  bool is_signal_frame = false;  // augmentation 'S': unwinders match its bytes (process ruling 4)
};

// Sorted, disjoint. Where two overlap the earlier one is cut; of two that begin together the first stays.
// Throws ImageError where .eh_frame is damaged.
std::vector<FrameRange> read_frame_ranges(const ElfImage& image);

// Addresses at which exceptions land, from the exception table of this range.
std::vector<std::uint64_t> landing_pads(const ElfImage& image, const FrameRange& range);

}  // namespace penumbra::rewrite
