#include "instrument/rewrite/area_x86_64.h"

namespace penumbra::rewrite {

void Area::reserve(std::size_t text_bytes, std::size_t instructions) {
  writer.reserve(text_bytes * 3);
  links.reserve(instructions);
  slot_links.reserve(instructions / 2);
  module.places.reserve(instructions * 2);
  module.states.reserve(instructions);
  module.checks.reserve(instructions / 2);
  module.accesses.reserve(instructions / 2);
  module.patches.reserve(instructions / 4);
  module.links.reserve(instructions / 2);
}

void Area::mark(std::uint32_t text_offset, const ModuleState& state) {
  const std::uint32_t here = writer.position();
  auto& places = module.places;
  if (places.empty() || places.back().text_offset != text_offset) places.push_back({here, text_offset});
  auto& states = module.states;
  if (states.empty() ? !(state == plain_state()) : !(state == states.back())) {
    states.push_back(state);
    states.back().code_offset = here;
  }
}

}  // namespace penumbra::rewrite
