#include "runtime/base/check.h"
#include "runtime/base/config.h"
#include "runtime/base/options.h"
#include "runtime/stacks/code_modules.h"
#include "runtime/stacks/depot.h"
#include "runtime/stacks/stacks.h"
#include "runtime/stacks/trail.h"
#include "runtime/stacks/unwind.h"

namespace penumbra::stacks {
namespace {

using Unwind = std::size_t(const CodeContext& from, std::uintptr_t* frames, std::size_t max);

StackId record_by(Unwind& walk, const CodeContext& from, std::size_t depth) {
  std::uintptr_t frames[kMaxStackFrames];
  return depot_put(frames, walk(from, frames, depth));
}

}  // namespace

StackId record(const CodeContext& from, std::size_t depth) {
  if (depth == 0) return kNoStack;
  if (depth > kMaxStackFrames) depth = kMaxStackFrames;
  // The loader allocates and frees whenever it maps or unmaps a module, if free() is ours: see code_modules.h.
  if (!process_options().heap || !is_loader_known()) [[unlikely]]
    return record_by(unwind, from, depth);
  if (is_loader_code(from.pc) && !keeps_modules(from.pc)) revalidate_modules();
  StackId id;
  if (!Trail::try_record(from, depth, id)) return record_by(unwind_by_rules, from, depth);
#if PENUMBRA_VALIDATE > 1
  const StackId walked = record_by(unwind, from, depth);  // a witness that remembers nothing
  PENUMBRA_CHECK(walked == id || walked == kNoStack || id == kNoStack);
#endif
  return id;
}

void fork_child() {
  Trail::fork_child();
}

}  // namespace penumbra::stacks
