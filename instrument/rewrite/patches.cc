#include "instrument/rewrite/patches.h"

#include <algorithm>

namespace penumbra::rewrite {
namespace {

// States of a byte while patches are placed.
enum class ByteUse : std::uint8_t { kFree, kNative, kPatch };

constexpr std::uint32_t kLongJump = 5;
constexpr std::uint32_t kShortJump = 2;

struct EntryPoint {
  std::uint32_t at = 0;  // from the function's begin
  std::uint32_t instruction = 0;
  bool native = false;  // stays as it is, or has to
  bool failed = false;
};

class PatchPlacer {
 public:
  PatchPlacer(const Program& program, const Function& function, const std::vector<bool>& reach,
              std::span<const std::uint32_t> placed, bool is_begin_safe);

  // Settles which entries get a jump, and the jumps.
  void place();

  const std::vector<EntryPoint>& entries() const { return entries_; }
  const std::vector<ModulePatch>& patches() const { return patches_; }

 private:
  bool is_free(std::uint32_t from, std::uint32_t count) const;
  bool holds_entry(std::uint32_t from, std::uint32_t count) const;
  void take(std::uint32_t from, std::uint32_t count) { std::fill_n(use_.begin() + from, count, ByteUse::kPatch); }
  void mark_native(std::uint32_t instruction);
  void mark_what_stays_native();
  bool place_long(const EntryPoint& entry);
  bool place_short(const EntryPoint& entry);
  bool is_inside(std::uint32_t instruction) const {
    return instruction != kNone && instruction >= function_.first && instruction < function_.first + function_.count;
  }
  std::uint32_t target_of(std::uint32_t instruction) const {
    return program_.instruction_at(
        branch_target(program_.form(instruction), program_.bytes(instruction), program_.address(instruction)));
  }
  std::uint32_t place_of(std::uint32_t instruction) const { return placed_[instruction] - 1; }

  const Program& program_;
  const Function& function_;
  std::span<const std::uint32_t> placed_;
  bool is_begin_safe_;
  std::uint32_t size_;        // bytes of the function and of the padding behind it, which may hold the end of a patch
  std::uint32_t text_begin_;  // text offset of the function
  std::vector<EntryPoint> entries_;
  std::vector<bool> is_entry_;  // by byte
  std::vector<ByteUse> use_;    // by byte
  std::vector<ModulePatch> patches_;
};

PatchPlacer::PatchPlacer(const Program& program, const Function& function, const std::vector<bool>& reach,
                         std::span<const std::uint32_t> placed, bool is_begin_safe)
    : program_(program),
      function_(function),
      placed_(placed),
      is_begin_safe_(is_begin_safe),
      size_(static_cast<std::uint32_t>(function.range.end + function.padding - function.range.begin)),
      text_begin_(static_cast<std::uint32_t>(function.range.begin - program.text_begin())),
      is_entry_(size_ + 1, false) {
  for (std::uint32_t k = 0; k < function.block_count; ++k) {
    const Block& block = program.blocks()[function.first_block + k];
    if (block.entry == kNoEntry) continue;
    const auto at = static_cast<std::uint32_t>(program.address(block.first) - function.range.begin);
    entries_.push_back({at, block.first, !reach[k], false});
    is_entry_[at] = true;
  }
}

bool PatchPlacer::is_free(std::uint32_t from, std::uint32_t count) const {
  if (from + count > size_) return false;
  return std::all_of(use_.begin() + from, use_.begin() + from + count, [](ByteUse u) { return u == ByteUse::kFree; });
}

bool PatchPlacer::holds_entry(std::uint32_t from, std::uint32_t count) const {
  for (std::uint32_t q = from; q < from + count; ++q) {
    if (is_entry_[q]) return true;
  }
  return false;
}

void PatchPlacer::mark_native(std::uint32_t instruction) {
  const auto at = static_cast<std::ptrdiff_t>(program_.address(instruction) - function_.range.begin);
  std::fill_n(use_.begin() + at, program_.form(instruction).length, ByteUse::kNative);
}

// Calls run where they are, and so does whatever control reaches from an entry that stays native.
void PatchPlacer::mark_what_stays_native() {
  std::vector<bool> stops(function_.count, false);
  std::vector<bool> seen(function_.count, false);
  std::vector<std::uint32_t> waits;
  for (const EntryPoint& entry : entries_) {
    if (entry.native) {
      waits.push_back(entry.instruction);
    } else {
      stops[entry.instruction - function_.first] = true;
    }
  }
  for (std::uint32_t i = function_.first; i < function_.first + function_.count; ++i) {
    const Flow flow = program_.form(i).flow;
    if (flow == Flow::kCall || flow == Flow::kIndirectCall) mark_native(i);
  }
  while (!waits.empty()) {
    std::uint32_t i = waits.back();
    waits.pop_back();
    while (is_inside(i) && !seen[i - function_.first] && !stops[i - function_.first]) {
      seen[i - function_.first] = true;
      mark_native(i);
      switch (program_.form(i).flow) {
        case Flow::kConditionalJump:
        case Flow::kCountedJump:
          waits.push_back(target_of(i));
          ++i;
          break;
        case Flow::kJump: i = target_of(i); break;
        case Flow::kNext:
        case Flow::kSystemCall: ++i; break;
        default: i = kNone;
      }
    }
  }
}

bool PatchPlacer::place_long(const EntryPoint& entry) {
  const bool is_whole = program_.form(entry.instruction).length >= kLongJump;
  if (!is_free(entry.at, kLongJump) || holds_entry(entry.at + 1, kLongJump - 1)) return false;
  if (function_.has_unresolved_jump && !is_whole && !(is_begin_safe_ && entry.at == 0)) return false;  // R3
  take(entry.at, kLongJump);
  patches_.push_back({text_begin_ + entry.at, place_of(entry.instruction), ModulePatch::kJump5});
  return true;
}

// The nearest slot is as good as any.
bool PatchPlacer::place_short(const EntryPoint& entry) {
  if (function_.has_unresolved_jump || !is_free(entry.at, kShortJump) || is_entry_[entry.at + 1]) return false;
  take(entry.at, kShortJump);
  const std::int64_t from = std::int64_t{entry.at} + kShortJump;
  for (std::int64_t d = 0; d <= 127; ++d) {
    for (const std::int64_t slot : {from + d, from - std::int64_t{kLongJump} - d}) {
      if (slot < 0 || slot - from < -128 || slot + kLongJump > std::int64_t{size_}) continue;
      const auto at = static_cast<std::uint32_t>(slot);
      if (!is_free(at, kLongJump) || holds_entry(at, kLongJump)) continue;
      take(at, kLongJump);
      patches_.push_back({text_begin_ + entry.at, text_begin_ + at, ModulePatch::kJump2});
      patches_.push_back({text_begin_ + at, place_of(entry.instruction), ModulePatch::kJump5});
      return true;
    }
  }
  return false;
}

void PatchPlacer::place() {
  for (bool settled = false; !settled;) {
    settled = true;
    patches_.clear();
    use_.assign(size_, ByteUse::kFree);
    mark_what_stays_native();
    std::vector<EntryPoint*> short_ones;
    for (EntryPoint& entry : entries_) {
      if (!entry.native && !place_long(entry)) short_ones.push_back(&entry);
    }
    for (EntryPoint* entry : short_ones) {
      if (place_short(*entry)) continue;
      entry->native = entry->failed = true;
      settled = false;
    }
  }
}

}  // namespace

void place_patches(const Program& program, const Function& function, const std::vector<bool>& reach,
                   std::span<const std::uint32_t> placed, bool is_begin_safe, RewrittenModule& module) {
  PatchPlacer placer(program, function, reach, placed, is_begin_safe);
  RewriteStats& stats = module.stats;
  for (const EntryPoint& entry : placer.entries()) stats.entries += !entry.native;
  placer.place();
  for (const EntryPoint& entry : placer.entries()) stats.unpatched += entry.failed;
  for (const ModulePatch& patch : placer.patches()) {
    stats.jumps_5 += patch.kind == ModulePatch::kJump5;
    stats.jumps_2 += patch.kind == ModulePatch::kJump2;
  }
  std::ranges::copy(placer.patches(), std::back_inserter(module.patches));
}

}  // namespace penumbra::rewrite
