// Faults as they are raised, kept for a test to look at: the hook that stands where reports would.
//
// zone: hosted
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "runtime/base/fault.h"

namespace penumbra::abi {

class FaultLog {
 public:
  FaultLog() {
    faults().clear();
    set_fault_hook([](const Fault& fault) { faults().push_back(fault); });
  }
  ~FaultLog() { set_fault_hook(nullptr); }
  FaultLog(const FaultLog&) = delete;
  FaultLog& operator=(const FaultLog&) = delete;

  static std::vector<Fault>& faults() {
    static std::vector<Fault> log;
    return log;
  }

  // The only fault since the last call; fails the test if there was none, or more than one.
  static Fault take_one() {
    EXPECT_EQ(faults().size(), 1u);
    const Fault fault = faults().empty() ? Fault{} : faults().front();
    faults().clear();
    return fault;
  }
};

}  // namespace penumbra::abi
