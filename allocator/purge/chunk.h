// What a lane of the clean-up has in hand between two looks at its cursor: the areas of one chunk, and how far they have come.
//
//     empty --collect--> collected --clear--> cleared --flush--> flushed --settle--> empty
//                                                                  |  ^
//                                                                  +--+ some areas settled, others not yet
//
// collected  taken out of their lists; poisoned; perhaps still in memory.
// cleared    no memory (or kept on purpose), inaccessible, and no longer counted in their units.
// flushed    nothing anywhere remembers them: what is left is to give their ranges back, in any number of steps.
//
// C1  only the holder of the purge mutex reads or writes a chunk, or a helper it waits for.
// C2  a step that ends early leaves a chunk that the next step takes up at its stage: what is flushed is not flushed
//     again, and clearing twice does what clearing once does.
//
// zone: nomalloc
#pragma once

#include <cstddef>
#include <cstdint>

#include "allocator/purge/gather.h"
#include "allocator/region/record.h"

namespace penumbra::region {

enum class Stage : std::uint8_t { kEmpty, kCollected, kCleared, kFlushed };

struct Chunk {
  static constexpr std::size_t kMaxAreas = Gather::kMaxRanges;

  Stage stage = Stage::kEmpty;
  std::uint32_t count = 0;
  std::uint32_t closing = 0;  // of these, what goes back to a free tree
  std::uint32_t settled = 0;  // areas [0, settled) are back in a pool, a tree or a list
  Handle areas[kMaxAreas]{};
  Gather gather;
};

}  // namespace penumbra::region
