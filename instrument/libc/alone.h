// While one lives, the process has no thread of ours (process ruling 17).
//
// zone: nomalloc
#pragma once

#include "instrument/libc/state.h"

namespace penumbra::libc {

class Alone {
 public:
  Alone() {
    if (state.hold_threads != nullptr) [[unlikely]]
      state.hold_threads();
  }
  ~Alone() {
    if (state.resume_threads != nullptr) [[unlikely]]
      state.resume_threads();
  }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;
};

}  // namespace penumbra::libc
