#include "instrument/load/areas.h"

#include <sys/mman.h>

#include <atomic>

#include "instrument/load/slots.h"
#include "runtime/base/os_linux.h"
#include "runtime/base/raw_memory.h"
#include "shadow/address_map.h"
#include "shadow/encoding.h"

namespace penumbra::load {
namespace {

struct Slot {
  std::atomic<std::uint32_t> generation{0};  // odd: changes just now
  // The ranges of `area`, for readers that may come at any time; 0, 0 while there is none.
  std::atomic<std::uintptr_t> code_begin{0};
  std::atomic<std::uintptr_t> code_end{0};
  std::atomic<std::uintptr_t> text_begin{0};
  std::atomic<std::uintptr_t> text_end{0};
  Area area;

  bool is_free() const { return text_end.load(std::memory_order_relaxed) == 0; }

  void set_ranges(AppRange code, AppRange text) {
    const std::uint32_t before = generation.load(std::memory_order_relaxed);
    generation.store(before + 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    code_begin.store(code.begin.value, std::memory_order_relaxed);
    code_end.store(code.end.value, std::memory_order_relaxed);
    text_begin.store(text.begin.value, std::memory_order_relaxed);
    text_end.store(text.end.value, std::memory_order_relaxed);
    generation.store(before + 2, std::memory_order_release);
  }
};

constinit Slot g_slots[kMaxAreas];
constinit std::atomic<std::size_t> g_used{0};  // slots from here on were never used

// How far a 32-bit displacement reaches, with room for the size of module and area.
constexpr std::uint64_t kReach = std::uint64_t{0x7fff0000};
constexpr std::uint64_t kSearchStep = std::uint64_t{2} << 20;

// Twice the reach: what the program maps later takes its share, and modules that come then want areas too.
constexpr std::uint64_t kHeldBytes = std::uint64_t{4} << 30;

constinit AppRange g_held;

std::size_t area_bytes(const ModuleHeader& header) {
  return header.code_bytes + kSlotBytes;
}

bool is_within_reach(std::uintptr_t place, std::size_t bytes, std::uintptr_t text, std::uintptr_t text_end) {
  return (place < text ? text_end - place : place + bytes - text) < kReach;
}

// Reserves the area at its own place, else where the kernel has room within reach of the text, else anywhere below; 0 when
// there is no place.
std::uintptr_t find_place(const ModuleHeader& header, std::uintptr_t load_base) {
  const std::size_t bytes = area_bytes(header);
  const std::uintptr_t wanted = load_base + static_cast<std::uintptr_t>(header.area_address);
  if (os::reserve_at(AppAddr(wanted), bytes).ok()) return wanted;
  const std::uintptr_t text = load_base + header.text_begin;
  const std::uintptr_t text_end = text + header.text_bytes;
  if (const os::Result anywhere = os::reserve(AppAddr(), bytes); anywhere.ok()) {
    const std::uintptr_t place = anywhere.address().value;
    if (is_within_reach(place, bytes, text, text_end)) return place;
    os::unmap(AppAddr(place), bytes).ignore();
  }
  for (std::uint64_t step = kSearchStep; step < kReach && text > step + bytes + kSearchStep; step += kSearchStep) {
    const std::uintptr_t below = round_down(text - step - bytes, kPageSize);
    if (!is_within_reach(below, bytes, text, text_end)) break;
    if (shadow::has_shadow(AppAddr(below)) && os::reserve_at(AppAddr(below), bytes).ok()) return below;
  }
  return 0;
}

void set_32(std::uintptr_t at, std::uint32_t value) {
  raw_copy(reinterpret_cast<void*>(at), &value, sizeof value);
}

std::uint32_t get_32(std::uintptr_t at) {
  std::uint32_t value;
  raw_copy(&value, reinterpret_cast<const void*>(at), sizeof value);
  return value;
}

// Everything in the code that depends on where module and area really are.
void adjust_code(const ModuleMap& file, std::uintptr_t place, std::uintptr_t load_base) {
  const std::uintptr_t wanted = load_base + static_cast<std::uintptr_t>(file.header->area_address);
  const auto moved = static_cast<std::uint32_t>(place - wanted);
  if (moved != 0) {
    for (const std::uint32_t at : file.links()) set_32(place + at, get_32(place + at) - moved);
    for (const std::uint32_t at : file.table_operands()) set_32(place + at, get_32(place + at) + moved);
  }
  const std::uintptr_t link_time_area = static_cast<std::uintptr_t>(file.header->area_address);
  for (const ModuleTableCopy& copy : file.table_copies()) {
    for (std::uint32_t n = 0; n < copy.count; ++n) {
      const std::uintptr_t at = place + copy.code_offset + std::uintptr_t{n} * copy.entry_bytes;
      if (copy.entry_bytes == 4) {
        if (moved == 0) continue;
        // Entries that lead into the area move with it, the others stay.
        const std::uintptr_t target =
            copy.base + static_cast<std::uintptr_t>(std::int64_t{static_cast<std::int32_t>(get_32(at))});
        if (target - link_time_area < file.header->code_bytes) set_32(at, get_32(at) + moved);
      } else {
        std::uintptr_t target;
        raw_copy(&target, reinterpret_cast<const void*>(at), sizeof target);
        target = target - link_time_area < file.header->code_bytes ? place + (target - link_time_area)
                                                                   : load_base + target;
        raw_copy(reinterpret_cast<void*>(at), &target, sizeof target);
      }
    }
  }
}

bool has_absolute_tables(const ModuleMap& file) {
  for (const ModuleTableCopy& copy : file.table_copies()) {
    if (copy.entry_bytes == 8) return true;
  }
  return false;
}

}  // namespace

void hold_room() {
  const os::Result held = os::reserve(AppAddr(), kHeldBytes);
  if (held.ok()) g_held = {held.address(), held.address() + kHeldBytes};
}

void release_room() {
  if (g_held.bytes() != 0) os::unmap(g_held.begin, g_held.bytes()).ignore();
  g_held = {};
}

bool make_area(Area& area, std::uintptr_t load_base) {
  const ModuleMap& file = area.file;
  const ModuleHeader& header = *file.header;
  const std::uintptr_t place = find_place(header, load_base);
  if (place == 0) return false;
  const AppAddr slots(place + header.code_bytes);
  const bool moved = place != load_base + static_cast<std::uintptr_t>(header.area_address);
  const int prot = moved || has_absolute_tables(file) ? PROT_READ | PROT_WRITE : PROT_READ | PROT_EXEC;
  const bool mapped =
      os::map_private_file_at(AppAddr(place), header.code_bytes, prot, file.fd, header.code_offset).ok() &&
      os::protect(slots, kSlotBytes, PROT_READ | PROT_WRITE).ok();
  if (!mapped) {
    os::unmap(AppAddr(place), area_bytes(header)).ignore();
    return false;
  }
  if ((prot & PROT_WRITE) != 0) {
    adjust_code(file, place, load_base);
    if (!os::protect(AppAddr(place), header.code_bytes, PROT_READ | PROT_EXEC).ok()) {
      os::unmap(AppAddr(place), area_bytes(header)).ignore();
      return false;
    }
  }
  fill_slots(slots.ptr<std::uintptr_t>());
  os::protect(slots, kSlotBytes, PROT_READ).ignore();
  area.load_base = load_base;
  area.code = {AppAddr(place), AppAddr(place + header.code_bytes)};
  area.text = {AppAddr(load_base + header.text_begin), AppAddr(load_base + header.text_begin + header.text_bytes)};
  return true;
}

void unmap_area(const Area& area) {
  os::unmap(area.code.begin, area_bytes(*area.file.header)).ignore();
}

const Area* publish(const Area& area) {
  std::size_t n = 0;
  while (n < kMaxAreas && !g_slots[n].is_free()) ++n;
  if (n == kMaxAreas) return nullptr;
  Slot& slot = g_slots[n];
  slot.area = area;
  slot.area.file.fd = -1;
  slot.set_ranges(area.code, area.text);
  if (g_used.load(std::memory_order_relaxed) <= n) g_used.store(n + 1, std::memory_order_release);
  return &slot.area;
}

void release(const Area* area) {
  for (std::size_t n = 0; n < g_used.load(std::memory_order_relaxed); ++n) {
    if (&g_slots[n].area != area) continue;
    g_slots[n].set_ranges({}, {});
    unmap_area(g_slots[n].area);
    unmap_module(g_slots[n].area.file);
  }
}

namespace {

using Bound = std::atomic<std::uintptr_t> Slot::*;

const Area* area_around(std::uintptr_t pc, Bound begin, Bound end) {
  const std::size_t used = g_used.load(std::memory_order_acquire);
  for (std::size_t n = 0; n < used;) {
    const Slot& slot = g_slots[n];
    const std::uint32_t generation = slot.generation.load(std::memory_order_acquire);
    const bool is_inside =
        (slot.*begin).load(std::memory_order_relaxed) <= pc && pc < (slot.*end).load(std::memory_order_relaxed);
    if (is_inside && generation % 2 == 0) {
      std::atomic_thread_fence(std::memory_order_acquire);
      if (slot.generation.load(std::memory_order_relaxed) == generation) return &slot.area;
      continue;  // became another area's while we looked
    }
    ++n;
  }
  return nullptr;
}

}  // namespace

const Area* area_of_code(std::uintptr_t pc) {
  return area_around(pc, &Slot::code_begin, &Slot::code_end);
}

const Area* area_of_text(std::uintptr_t pc) {
  return area_around(pc, &Slot::text_begin, &Slot::text_end);
}

namespace {

// Index of the last record whose code offset is at most `offset`, or the count of records when there is none.
template <class Record>
std::size_t last_at_or_before(const Records<Record>& records, std::uint32_t offset) {
  std::size_t low = 0;
  std::size_t high = records.count;
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (records[middle].code_offset <= offset) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low == 0 ? records.count : low - 1;
}

}  // namespace

std::size_t place_at(const Area& area, std::uintptr_t pc) {
  return last_at_or_before(area.file.places(), area.code_offset(pc));
}

std::uintptr_t original_pc(const Area& area, std::uintptr_t pc) {
  const Records<ModulePlace> places = area.file.places();
  const std::size_t n = place_at(area, pc);
  return n == places.count ? 0 : area.text.begin.value + places[n].text_offset;
}

ModuleState state_at(const Area& area, std::uintptr_t pc) {
  const Records<ModuleState> states = area.file.states();
  const std::size_t n = last_at_or_before(states, area.code_offset(pc));
  if (n == states.count) return ModuleState{0, 0, 0, 0xff, {0xff, 0xff, 0xff}, 0};
  return states[n];
}

std::uintptr_t relocated_pc(const Area& area, std::uintptr_t original) {
  // Functions are relocated in ascending order, so that the places of first parts ascend in text offsets as well, but
  // thunks repeat earlier ones: a scan is right, and this is rare.
  const auto wanted = static_cast<std::uint32_t>(original - area.text.begin.value);
  for (const ModulePlace& place : area.file.places()) {
    if (place.text_offset == wanted) return area.code.begin.value + place.code_offset;
  }
  return 0;
}

}  // namespace penumbra::load
