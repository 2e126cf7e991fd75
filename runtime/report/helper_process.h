// Starts one of the launcher's own commands (`penumbra symbolize`, `penumbra rewrite`) beside the checked process, so that the program cannot notice (process ruling 16).
//
// A child of ours would be seen by the program's wait(). So an intermediate is made by a raw clone with exit signal
// 0, which only __WCLONE sees; it makes the helper, which belongs to init as soon as the intermediate has ended,
// before start() returns. Both steps share our memory and suspend us (VM|VFORK): no page table is copied, however
// large the program is, and nothing here runs at the same time as we do.
//
//     program --clone(VM|VFORK, 0)--> intermediate --clone(VM|VFORK, SIGCHLD)--> helper --execve--> penumbra
//        |  <-- reaps (__WCLONE) -- ends |
//
// Not used where it would be seen or could not be trusted: the process is init or a subreaper (the helper would come
// back to it), has been sealed, or the helper's file is not the one that was found at start (chroot, replaced).
//
// zone: signal-safe
#pragma once

#include <cstddef>
#include <cstdint>

namespace penumbra::report {

inline constexpr std::size_t kMostHelperArguments = 80;

struct Helper {
  int to = -1;  // the helper reads from here; both are close-on-exec and high
  int from = -1;
  int pid = 0;
};

// Looks for the launcher's binary beside libpenumbra.so, once, at start. Without it start() fails.
void find_helper();

// `arguments` follow the launcher's own name, null-terminated, at most kMostHelperArguments. All signals but the synchronous
// ones are blocked by the caller. False where no helper can be had, or another thread is just starting one.
bool start_helper(Helper& helper, const char* const* arguments);
// Closes the pipes, upon which the helper ends; one that took too long is killed.
void stop_helper(Helper& helper, bool kill);

}  // namespace penumbra::report
