#include "runtime/base/check.h"
#include "runtime/stacks/code_modules.h"
#include "runtime/stacks/depot.h"
#include "runtime/stacks/stacks.h"
#include "runtime/stacks/trail.h"
#include "runtime/stacks/unwind.h"

namespace penumbra::stacks {
namespace {

StackId record_by_walking(const CodeContext& from, std::size_t depth) {
  std::uintptr_t frames[kMaxStackFrames];
  return depot_put(frames, unwind_trusted(from, frames, depth));
}

}  // namespace

StackId record(const CodeContext& from, std::size_t depth) {
  if (depth == 0) return kNoStack;
  if (depth > kMaxStackFrames) depth = kMaxStackFrames;
  // The loader allocates and frees whenever it maps or unmaps a module, see code_modules.h.
  if (is_loader_code(from.pc)) revalidate_modules();
  StackId id;
  if (!Trail::try_record(from, depth, id)) return record_by_walking(from, depth);
#if PENUMBRA_VALIDATE > 1
  const StackId walked = record_by_walking(from, depth);  // a witness without memory of the last stack
  PENUMBRA_CHECK(walked == id || walked == kNoStack || id == kNoStack);
#endif
  return id;
}

}  // namespace penumbra::stacks
