#include "instrument/load/patch.h"

#include <sys/mman.h>

#include "runtime/base/os_linux.h"

namespace penumbra::load {
namespace {

constexpr std::uint8_t kJumpNear = 0xe9;
constexpr std::uint8_t kJumpShort = 0xeb;

void put_relative(volatile std::uint8_t* at, std::uintptr_t target) {
  const auto distance = static_cast<std::uint32_t>(target - (reinterpret_cast<std::uintptr_t>(at) + 4));
  for (unsigned n = 0; n < 4; ++n) at[n] = static_cast<std::uint8_t>(distance >> (8 * n));
}

// The pages stay executable all the time: other code of the module, or of ours, may run on them.
os::Result protect_text(const Area& area, int prot) {
  os::Result done(0);
  for (const ModuleTextRange& range : area.file.text_ranges()) {
    const AppAddr begin = area.text.begin + range.text_offset;
    const AppAddr first(round_down(begin.value, kPageSize));
    const std::size_t bytes = round_up((begin + range.bytes).value, kPageSize) - first.value;
    done = os::protect(first, bytes, prot);
    if (!done.ok()) break;
  }
  return done;
}

}  // namespace

void put_jump(std::uintptr_t at, std::uintptr_t target) {
  auto* const code = reinterpret_cast<volatile std::uint8_t*>(at);
  code[0] = kJumpNear;
  put_relative(code + 1, target);
}

namespace {

// Puts the patched text of the module file in the place of the original. False, whatever has been mapped by then, where
// not all of it could be: the patches that are there already are those that are written one by one.
bool map_patched_text(const Area& area, int fd) {
  if (fd < 0 ||
      area.code.begin.value != area.load_base + static_cast<std::uintptr_t>(area.file.header->area_address)) {
    return false;
  }
  for (const ModuleTextRange& range : area.file.text_ranges()) {
    const AppAddr begin = area.text.begin + range.text_offset;
    const AppAddr first(round_down(begin.value, kPageSize));
    const std::size_t bytes = round_up((begin + range.bytes).value, kPageSize) - first.value;
    if (range.patched_offset == 0 ||
        !os::map_private_file_at(first, bytes, PROT_READ | PROT_EXEC, fd, range.patched_offset).ok()) {
      return false;
    }
  }
  return true;
}

}  // namespace

os::Result patch_module(const Area& area, int fd) {
  if (map_patched_text(area, fd)) return os::Result(0);
  const os::Result opened = protect_text(area, PROT_READ | PROT_WRITE | PROT_EXEC);
  if (!opened.ok()) {
    protect_text(area, PROT_READ | PROT_EXEC).ignore();
    return opened;
  }
  for (const ModulePatch& patch : area.file.patches()) {
    auto* const at = reinterpret_cast<volatile std::uint8_t*>(area.text.begin.value + patch.text_offset);
    switch (patch.kind) {
      case ModulePatch::kJump5:
        put_jump(area.text.begin.value + patch.text_offset, area.code.begin.value + patch.target);
        break;
      case ModulePatch::kJump2:
        at[0] = kJumpShort;
        at[1] = static_cast<std::uint8_t>(patch.target - (patch.text_offset + 2));
        break;
      case ModulePatch::kCall: put_relative(at + 1, area.code.begin.value + patch.target); break;
    }
  }
  // A kernel that let us write lets us stop; if not, the code is merely writable.
  protect_text(area, PROT_READ | PROT_EXEC).ignore();
  return opened;
}

}  // namespace penumbra::load
