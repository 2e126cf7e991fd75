#include "instrument/load/areas.h"

#include <sys/mman.h>

#include <atomic>

#include "instrument/load/slots.h"
#include "runtime/base/os_linux.h"
#include "runtime/base/raw_memory.h"
#include "shadow/encoding.h"

namespace penumbra::load {
namespace {

constinit Area g_areas[kMaxAreas];
constinit std::atomic<std::size_t> g_count{0};

// How far a 32-bit displacement reaches, with room for the size of module and area.
constexpr std::uint64_t kReach = std::uint64_t{0x7fff0000};
constexpr std::uint64_t kSearchStep = std::uint64_t{2} << 20;

constinit AppRange g_held;

std::size_t area_bytes(const ModuleHeader& header) {
  return header.code_bytes + kSlotBytes;
}

// Reserves the area at its own place, else anywhere below or above within reach of the text; 0 when there is none.
std::uintptr_t find_place(const ModuleHeader& header, std::uintptr_t load_base) {
  const std::size_t bytes = area_bytes(header);
  const std::uintptr_t wanted = load_base + static_cast<std::uintptr_t>(header.area_address);
  if (os::reserve_at(AppAddr(wanted), bytes).ok()) return wanted;
  const std::uintptr_t text = load_base + header.text_begin;
  const std::uintptr_t text_end = text + header.text_bytes;
  for (std::uint64_t step = kSearchStep; step < kReach; step += kSearchStep) {
    const std::uintptr_t below = round_down(text - step - bytes, kPageSize);
    if (text > step + bytes + (1u << 20) && text_end - below < kReach && shadow::has_shadow(AppAddr(below)) &&
        os::reserve_at(AppAddr(below), bytes).ok()) {
      return below;
    }
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
  const os::Result held = os::reserve(AppAddr(), kReach);
  if (held.ok()) g_held = {held.address(), held.address() + kReach};
}

void release_room() {
  if (g_held.bytes() != 0) os::unmap(g_held.begin, g_held.bytes()).ignore();
  g_held = {};
}

bool make_area(const ModuleMap& file, std::uintptr_t load_base, Area& area) {
  const ModuleHeader& header = *file.header;
  const std::uintptr_t place = find_place(header, load_base);
  if (place == 0) return false;
  const AppAddr slots(place + header.code_bytes);
  const bool moved = place != load_base + static_cast<std::uintptr_t>(header.area_address);
  const int prot = moved || has_absolute_tables(file) ? PROT_READ | PROT_WRITE : PROT_READ | PROT_EXEC;
  const bool mapped =
      (header.code_bytes == 0 ||
       os::map_private_file_at(AppAddr(place), header.code_bytes, prot, file.fd, header.code_offset).ok()) &&
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
  area.file = file;
  area.load_base = load_base;
  area.code = {AppAddr(place), AppAddr(place + header.code_bytes)};
  area.text = {AppAddr(load_base + header.text_begin), AppAddr(load_base + header.text_begin + header.text_bytes)};
  return true;
}

bool publish(const Area& area) {
  const std::size_t n = g_count.load(std::memory_order_relaxed);
  if (n == kMaxAreas) return false;
  g_areas[n] = area;
  g_count.store(n + 1, std::memory_order_release);
  return true;
}

std::size_t area_count() {
  return g_count.load(std::memory_order_acquire);
}

const Area& area(std::size_t n) {
  return g_areas[n];
}

const Area* area_of_code(std::uintptr_t pc) {
  for (std::size_t n = 0; n < area_count(); ++n) {
    if (g_areas[n].code.contains(AppAddr(pc))) return &g_areas[n];
  }
  return nullptr;
}

const Area* area_of_text(std::uintptr_t pc) {
  for (std::size_t n = 0; n < area_count(); ++n) {
    if (g_areas[n].text.contains(AppAddr(pc))) return &g_areas[n];
  }
  return nullptr;
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
