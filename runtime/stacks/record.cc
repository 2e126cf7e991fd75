#include "runtime/stacks/code_modules.h"
#include "runtime/stacks/stacks.h"
#include "runtime/stacks/unwind.h"

namespace penumbra::stacks {

StackId record(const CodeContext& from, std::size_t depth) {
  if (depth == 0) return kNoStack;
  if (depth > kMaxStackFrames) depth = kMaxStackFrames;
  // The loader allocates and frees whenever it maps or unmaps a module, see code_modules.h.
  if (is_loader_code(from.pc)) revalidate_modules();
  std::uintptr_t frames[kMaxStackFrames];
  return depot_put(frames, unwind_trusted(from, frames, depth));
}

}  // namespace penumbra::stacks
