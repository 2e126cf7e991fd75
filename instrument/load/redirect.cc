#include "instrument/load/redirect.h"

#include <sys/mman.h>

#include "instrument/load/patch.h"
#include "runtime/base/os_linux.h"

namespace penumbra::load {
namespace {

constexpr std::size_t kJumpBytes = 5;

// The first record at or behind `text_offset`.
template <class Record>
std::size_t first_from(const Records<Record>& records, std::uint32_t text_offset) {
  std::size_t low = 0;
  std::size_t high = records.count;
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (records[middle].text_offset < text_offset) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

bool is_in_reach(std::uintptr_t from, std::uintptr_t to) {
  const auto distance = static_cast<std::int64_t>(to - (from + kJumpBytes));
  return distance == static_cast<std::int32_t>(distance);
}

const ModuleRedirect* find_redirect(const Area& area, std::uintptr_t entry) {
  const auto wanted = static_cast<std::uint32_t>(entry - area.text.begin.value);
  const Records<ModuleRedirect> redirects = area.file.redirects();
  const std::size_t n = first_from(redirects, wanted);
  return n == redirects.count || redirects[n].text_offset != wanted ? nullptr : &redirects[n];
}

}  // namespace

bool is_listed(const Area& area, std::uintptr_t entry) {
  return find_redirect(area, entry) != nullptr;
}

std::uintptr_t redirectable(const Area& area, std::uintptr_t entry) {
  const ModuleRedirect* const redirect = find_redirect(area, entry);
  if (redirect == nullptr || redirect->code_offset == kNotMoved) return 0;
  return area.code.begin.value + redirect->code_offset;
}

EntryWriter::EntryWriter(AppRange code)
    : pages_{AppAddr(round_down(code.begin.value, kPageSize)), AppAddr(round_up(code.end.value, kPageSize))},
      ok_(os::protect(pages_.begin, pages_.bytes(), PROT_READ | PROT_WRITE | PROT_EXEC).ok()) {}

EntryWriter::~EntryWriter() {
  if (ok_) os::protect(pages_.begin, pages_.bytes(), PROT_READ | PROT_EXEC).ignore();
}

bool EntryWriter::redirect(const Area& area, std::uintptr_t entry, std::uintptr_t to) {
  if (!ok_ || redirectable(area, entry) == 0) return false;
  const auto wanted = static_cast<std::uint32_t>(entry - area.text.begin.value);
  const Records<ModulePatch> patches = area.file.patches();
  std::size_t n = first_from(patches, wanted);
  if (n == patches.count || patches[n].text_offset != wanted) return false;
  if (patches[n].kind == ModulePatch::kJump2) {
    const std::uint32_t slot = patches[n].target;
    n = first_from(patches, slot);
    if (n == patches.count || patches[n].text_offset != slot) return false;
  }
  if (patches[n].kind != ModulePatch::kJump5) return false;
  return replace(area.text.begin.value + patches[n].text_offset, to);
}

bool EntryWriter::replace(std::uintptr_t entry, std::uintptr_t to) {
  if (!ok_ || !is_in_reach(entry, to)) return false;
  put_jump(entry, to);
  return true;
}

}  // namespace penumbra::load
