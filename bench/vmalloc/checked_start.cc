// Brings the shadow up before any compiled check of test_vmalloc_checked runs: inline checks read it unasked.
//
// Compiled without checks itself. Constructors of one program run in the order of their priorities, and
// compilers give their own for globals the default, the last; libraries' constructors ran before and carry no
// checks.
//
// zone: hosted

#include "instrument/abi/abi.h"
#include "shadow/address_map.h"

#include <unistd.h>

namespace {

[[gnu::constructor(101)]] void start_checks() {
  if (!penumbra::shadow::reserve_direct_map().ok()) {
    constexpr char kLine[] = "test_vmalloc_checked: cannot reserve the shadow\n";
    [[maybe_unused]] const ssize_t written = write(2, kLine, sizeof kLine - 1);
    _exit(1);
  }
  penumbra::abi::start();
}

}  // namespace
