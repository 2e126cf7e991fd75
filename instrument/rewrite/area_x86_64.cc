#include "instrument/rewrite/area_x86_64.h"

#include <algorithm>
#include <iterator>

namespace penumbra::rewrite {

ModuleState plain_state() {
  ModuleState state{};
  state.rax_home = kNoPush;
  std::fill(std::begin(state.pushed), std::end(state.pushed), kNoPush);
  return state;
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
