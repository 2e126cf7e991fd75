#include "runtime/prepare.h"

#include <errno.h>

#include <cstdint>
#include <iterator>

#include "runtime/base/module_key.h"
#include "runtime/base/options.h"
#include "runtime/base/os_process.h"
#include "runtime/base/text_buffer.h"
#include "runtime/report/helper_process.h"

namespace penumbra::runtime {
namespace {

constexpr int kPrepareMs = 2000;
constexpr const char* kWords[] = {"rewrite", "--prepare", "-o"};
// Behind the folder: --options and what the process wishes, as KEY=VALUE words.
constexpr std::size_t kWishes = 2;
constexpr std::size_t kMostFiles = report::kMostHelperArguments - std::size(kWords) - 1 - kWishes;

// The helper writes nothing, so that its end is the first thing to be read.
bool wait_for_end(const report::Helper& helper) {
  const std::uint64_t end = os::monotonic_ns() + std::uint64_t{kPrepareMs} * 1'000'000;
  for (;;) {
    const std::uint64_t now = os::monotonic_ns();
    if (now >= end || !os::wait_readable(helper.from, static_cast<int>((end - now + 999'999) / 1'000'000)))
      return false;
    char ignored[64];
    const os::Result got = os::read(helper.from, ignored, sizeof ignored);
    if (got.ok() && got.value() == 0) return true;
    if (!got.ok() && got.error() != EINTR) return false;
  }
}

}  // namespace

bool prepare_modules(const char* cache, const char* const* files, std::size_t count) {
  const char* arguments[report::kMostHelperArguments + 1] = {kWords[0], kWords[1], kWords[2], cache};
  const Options& options = process_options();
  FixedTextBuffer<kOptionTextBytes + 64> wishes;
  wishes.append("check=").append(check_kind_word(options.check)).append(options.exact ? ":exact=1" : ":exact=0");
  wishes.append(":cache_limit=").dec(options.cache_limit);
  if (options.shadow == ShadowKind::kPaged) wishes.append(":shadow=paged");
  if (options.optout[0] != '\0') wishes.append(":optout=").append(options.optout);
  const char** next = arguments + std::size(kWords) + 1;
  *next++ = "--options";
  *next++ = wishes.c_str();
  for (std::size_t n = 0; n < count && n < kMostFiles; ++n) *next++ = files[n];
  const os::SignalSet old = os::block_signals(~os::SignalSet{0});
  report::Helper helper;
  const bool is_started = report::start_helper(helper, arguments);
  const bool is_done = is_started && wait_for_end(helper);
  if (is_started) report::stop_helper(helper, false);
  os::restore_signals(old);
  return is_done;
}

}  // namespace penumbra::runtime
