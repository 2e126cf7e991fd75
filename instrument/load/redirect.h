// Having another function in place of one of libc's: the jump at its entry leads there, and its relocated copy is what
// the original means from then on.
//
// Process rulings 11 and 15. In a rewritten module only functions that the module file lists can be redirected (nothing
// else comes to them but through their entry). A function of a module that is not rewritten can be replaced as a whole.
//
// zone: nomalloc
#pragma once

#include <cstdint>

#include "instrument/load/areas.h"

namespace penumbra::load {

// Whether the function at `entry` plays a part of its own in libc, moved or not: its accesses are not checked in it.
bool is_listed(const Area& area, std::uintptr_t entry);
// The relocated copy of the function at `entry` when it can be redirected, else 0.
std::uintptr_t redirectable(const Area& area, std::uintptr_t entry);

// All jumps that are set between begin and end are written to code that is writable meanwhile, and executable all the
// time. One at a time.
class EntryWriter {
 public:
  // `code` is what entries are written in. ok() is false where the kernel does not let code be written.
  explicit EntryWriter(AppRange code);
  ~EntryWriter();
  EntryWriter(const EntryWriter&) = delete;
  EntryWriter& operator=(const EntryWriter&) = delete;

  bool ok() const { return ok_; }
  // False, and nothing is written, where `to` is out of reach, or the entry has no jump that could lead there.
  bool redirect(const Area& area, std::uintptr_t entry, std::uintptr_t to);
  // Over the first bytes of a function that nothing is left to be wanted of.
  bool replace(std::uintptr_t entry, std::uintptr_t to);

 private:
  AppRange pages_;
  bool ok_;
};

}  // namespace penumbra::load
