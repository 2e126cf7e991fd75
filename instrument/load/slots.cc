#include "instrument/load/slots.h"

namespace penumbra::load {

void fill_slots(std::uintptr_t* slots) {
  const auto entries = reinterpret_cast<std::uintptr_t>(penumbra_slot_entries);
  for (unsigned n = 0; n < kSpecialSlot; ++n) slots[n] = entries + n * kPenumbraSlotEntryBytes;
  slots[kSpecialSlot] = reinterpret_cast<std::uintptr_t>(penumbra_special_entry);
  slots[kSystemCallSlot] = reinterpret_cast<std::uintptr_t>(penumbra_system_call_entry);
  slots[kSystemReturnSlot] = reinterpret_cast<std::uintptr_t>(penumbra_system_return_entry);
}

}  // namespace penumbra::load
