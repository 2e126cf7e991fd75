// What the system calls of x86-64 read and write through their arguments: one table for the rewriter, which decides
// where something is to be checked, and for the checks.
//
// Numbers and structures are the kernel's (arch/x86/entry/syscalls/syscall_64.tbl, include/uapi), not libc's. Not in the
// table are calls without pointers, and those whose pointers cannot be judged: futex and the other words that a thread may
// still wake when their memory is gone, execve and clone (nothing is left to come back to), prctl,
// bpf, perf, io_uring and the like (their structures are versioned), and limits, which libc's entry points answer.
//
// zone: signal-safe
#pragma once

#include <asm/unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace penumbra {

enum class PointerKind : std::uint8_t {
  kNone,
  // Read before the call.
  kIn,       // `size` bytes
  kInSized,  // as many times `size` bytes as argument `other` says
  // Read by the kernel, and looked at after the call because their place must be readable first.
  kText,
  kVectorIn,    // iovec array of `other` elements, of which result bytes were taken
  kMessageIn,   // msghdr
  kMessagesIn,  // mmsghdr array, result of them
  // Written by the kernel, checked after the call where it did not fail.
  kOut,        // `size` bytes
  kOutSized,   // as many times `size` bytes as argument `other` says
  kOutResult,  // result times `size` bytes, at most argument `other` times
  kOutLength,  // at most as many bytes as the length that argument `other` points to said before
  kVectorOut,
  kMessageOut,
  kMessagesOut,
  kSets,     // three fd_sets in arguments 1 to 3, argument 0 descriptors
  kControl,  // ioctl: by the request in argument 1
  kLock,     // fcntl: by the command in argument 1
  kMapping,  // no memory that is touched: address space that is given, moved or taken
};

struct PointerArgument {
  PointerKind kind = PointerKind::kNone;
  std::uint8_t argument = 0;
  std::uint8_t other = 0;
  std::uint16_t size = 1;
};

struct SystemCall {
  std::uint16_t number = 0;
  const char* name = nullptr;
  std::array<PointerArgument, 4> pointers{};

  // Whether there is anything to be done before the call.
  constexpr bool is_seen_before() const {
    for (const PointerArgument& p : pointers) {
      switch (p.kind) {
        case PointerKind::kIn:
        case PointerKind::kInSized:
        case PointerKind::kOut:
        case PointerKind::kOutSized:
        case PointerKind::kOutResult:
        case PointerKind::kOutLength:
        case PointerKind::kMessageOut:
        case PointerKind::kControl:
        case PointerKind::kLock:
        case PointerKind::kMapping: return true;
        default: break;
      }
    }
    return false;
  }

  // Whether there may be anything to be done behind it. munmap may take the very stack that a routine would need.
  constexpr bool is_seen_behind() const { return number != __NR_munmap; }
};

namespace system_call_table {

constexpr PointerArgument in(std::uint8_t argument, std::uint16_t size) {
  return {PointerKind::kIn, argument, 0, size};
}
constexpr PointerArgument in_sized(std::uint8_t argument, std::uint8_t count, std::uint16_t size = 1) {
  return {PointerKind::kInSized, argument, count, size};
}
constexpr PointerArgument text(std::uint8_t argument) {
  return {PointerKind::kText, argument, 0, 1};
}
constexpr PointerArgument out(std::uint8_t argument, std::uint16_t size) {
  return {PointerKind::kOut, argument, 0, size};
}
constexpr PointerArgument out_sized(std::uint8_t argument, std::uint8_t count, std::uint16_t size = 1) {
  return {PointerKind::kOutSized, argument, count, size};
}
constexpr PointerArgument out_result(std::uint8_t argument, std::uint8_t room, std::uint16_t size = 1) {
  return {PointerKind::kOutResult, argument, room, size};
}
constexpr PointerArgument out_length(std::uint8_t argument, std::uint8_t length) {
  return {PointerKind::kOutLength, argument, length, 1};
}
constexpr PointerArgument of(PointerKind kind, std::uint8_t argument, std::uint8_t other = 0) {
  return {kind, argument, other, 1};
}

// Bytes of the kernel's structures.
inline constexpr std::uint16_t kInt = 4;
inline constexpr std::uint16_t kLong = 8;
inline constexpr std::uint16_t kStat = 144;
inline constexpr std::uint16_t kStatx = 256;
inline constexpr std::uint16_t kStatfs = 120;
inline constexpr std::uint16_t kTime = 16;       // timespec, timeval
inline constexpr std::uint16_t kTimer = 32;      // itimerval, itimerspec, two timespecs
inline constexpr std::uint16_t kSigaction = 32;  // handler, flags, restorer, mask
inline constexpr std::uint16_t kSiginfo = 128;
inline constexpr std::uint16_t kStack = 24;
inline constexpr std::uint16_t kUsage = 144;
inline constexpr std::uint16_t kNames = 390;  // new_utsname
inline constexpr std::uint16_t kSystemInfo = 112;
inline constexpr std::uint16_t kPoll = 8;
inline constexpr std::uint16_t kEvent = 12;  // epoll_event, packed

#define PENUMBRA_CALL(name, ...) \
  SystemCall {                   \
    __NR_##name, #name, {        \
      __VA_ARGS__                \
    }                            \
  }

// Ascending by number.
inline constexpr std::array kSystemCalls{
    PENUMBRA_CALL(read, out_result(1, 2)),
    PENUMBRA_CALL(write, in_sized(1, 2)),
    PENUMBRA_CALL(open, text(0)),
    PENUMBRA_CALL(stat, text(0), out(1, kStat)),
    PENUMBRA_CALL(fstat, out(1, kStat)),
    PENUMBRA_CALL(lstat, text(0), out(1, kStat)),
    PENUMBRA_CALL(poll, in_sized(0, 1, kPoll)),
    PENUMBRA_CALL(mmap, of(PointerKind::kMapping, 0)),
    PENUMBRA_CALL(mprotect, of(PointerKind::kMapping, 0)),
    PENUMBRA_CALL(munmap, of(PointerKind::kMapping, 0)),
    PENUMBRA_CALL(brk, of(PointerKind::kMapping, 0)),
    PENUMBRA_CALL(rt_sigaction, in(1, kSigaction), out(2, kSigaction)),
    PENUMBRA_CALL(rt_sigprocmask, in_sized(1, 3), out_sized(2, 3)),
    PENUMBRA_CALL(ioctl, of(PointerKind::kControl, 2, 1)),
    PENUMBRA_CALL(pread64, out_result(1, 2)),
    PENUMBRA_CALL(pwrite64, in_sized(1, 2)),
    PENUMBRA_CALL(readv, of(PointerKind::kVectorOut, 1, 2)),
    PENUMBRA_CALL(writev, of(PointerKind::kVectorIn, 1, 2)),
    PENUMBRA_CALL(access, text(0)),
    PENUMBRA_CALL(pipe, out(0, 2 * kInt)),
    PENUMBRA_CALL(select, of(PointerKind::kSets, 1), in(4, kTime)),
    PENUMBRA_CALL(mremap, of(PointerKind::kMapping, 0)),
    PENUMBRA_CALL(nanosleep, in(0, kTime)),
    PENUMBRA_CALL(getitimer, out(1, kTimer)),
    PENUMBRA_CALL(setitimer, in(1, kTimer), out(2, kTimer)),
    PENUMBRA_CALL(sendfile, in(2, kLong)),
    PENUMBRA_CALL(connect, in_sized(1, 2)),
    PENUMBRA_CALL(accept, out_length(1, 2)),
    PENUMBRA_CALL(sendto, in_sized(1, 2), in_sized(4, 5)),
    PENUMBRA_CALL(recvfrom, out_result(1, 2), out_length(4, 5)),
    PENUMBRA_CALL(sendmsg, of(PointerKind::kMessageIn, 1)),
    PENUMBRA_CALL(recvmsg, of(PointerKind::kMessageOut, 1)),
    PENUMBRA_CALL(bind, in_sized(1, 2)),
    PENUMBRA_CALL(getsockname, out_length(1, 2)),
    PENUMBRA_CALL(getpeername, out_length(1, 2)),
    PENUMBRA_CALL(socketpair, out(3, 2 * kInt)),
    PENUMBRA_CALL(setsockopt, in_sized(3, 4)),
    PENUMBRA_CALL(getsockopt, out_length(3, 4)),
    PENUMBRA_CALL(wait4, out(1, kInt), out(3, kUsage)),
    PENUMBRA_CALL(uname, out(0, kNames)),
    PENUMBRA_CALL(fcntl, of(PointerKind::kLock, 2, 1)),
    PENUMBRA_CALL(truncate, text(0)),
    PENUMBRA_CALL(getdents, out_result(1, 2)),
    PENUMBRA_CALL(getcwd, out_result(0, 1)),
    PENUMBRA_CALL(chdir, text(0)),
    PENUMBRA_CALL(rename, text(0), text(1)),
    PENUMBRA_CALL(mkdir, text(0)),
    PENUMBRA_CALL(rmdir, text(0)),
    PENUMBRA_CALL(creat, text(0)),
    PENUMBRA_CALL(link, text(0), text(1)),
    PENUMBRA_CALL(unlink, text(0)),
    PENUMBRA_CALL(symlink, text(0), text(1)),
    PENUMBRA_CALL(readlink, text(0), out_result(1, 2)),
    PENUMBRA_CALL(chmod, text(0)),
    PENUMBRA_CALL(chown, text(0)),
    PENUMBRA_CALL(lchown, text(0)),
    PENUMBRA_CALL(gettimeofday, out(0, kTime)),
    PENUMBRA_CALL(getrusage, out(1, kUsage)),
    PENUMBRA_CALL(sysinfo, out(0, kSystemInfo)),
    PENUMBRA_CALL(times, out(0, 4 * kLong)),
    PENUMBRA_CALL(getgroups, out_result(1, 0, kInt)),
    PENUMBRA_CALL(setgroups, in_sized(1, 0, kInt)),
    PENUMBRA_CALL(getresuid, out(0, kInt), out(1, kInt), out(2, kInt)),
    PENUMBRA_CALL(getresgid, out(0, kInt), out(1, kInt), out(2, kInt)),
    PENUMBRA_CALL(rt_sigpending, out_sized(0, 1)),
    PENUMBRA_CALL(rt_sigtimedwait, in_sized(0, 3), out(1, kSiginfo), in(2, kTime)),
    PENUMBRA_CALL(rt_sigsuspend, in_sized(0, 1)),
    PENUMBRA_CALL(sigaltstack, in(0, kStack), out(1, kStack)),
    PENUMBRA_CALL(utime, text(0), in(1, 2 * kLong)),
    PENUMBRA_CALL(mknod, text(0)),
    PENUMBRA_CALL(statfs, text(0), out(1, kStatfs)),
    PENUMBRA_CALL(fstatfs, out(1, kStatfs)),
    PENUMBRA_CALL(chroot, text(0)),
    PENUMBRA_CALL(setxattr, text(0), text(1), in_sized(2, 3)),
    PENUMBRA_CALL(lsetxattr, text(0), text(1), in_sized(2, 3)),
    PENUMBRA_CALL(fsetxattr, text(1), in_sized(2, 3)),
    PENUMBRA_CALL(getxattr, text(0), text(1), out_result(2, 3)),
    PENUMBRA_CALL(lgetxattr, text(0), text(1), out_result(2, 3)),
    PENUMBRA_CALL(fgetxattr, text(1), out_result(2, 3)),
    PENUMBRA_CALL(listxattr, text(0), out_result(1, 2)),
    PENUMBRA_CALL(llistxattr, text(0), out_result(1, 2)),
    PENUMBRA_CALL(flistxattr, out_result(1, 2)),
    PENUMBRA_CALL(time, out(0, kLong)),
    PENUMBRA_CALL(getdents64, out_result(1, 2)),
    PENUMBRA_CALL(clock_settime, in(1, kTime)),
    PENUMBRA_CALL(clock_gettime, out(1, kTime)),
    PENUMBRA_CALL(clock_getres, out(1, kTime)),
    PENUMBRA_CALL(clock_nanosleep, in(2, kTime)),
    PENUMBRA_CALL(epoll_wait, out_result(1, 2, kEvent)),
    PENUMBRA_CALL(epoll_ctl, in(3, kEvent)),
    PENUMBRA_CALL(utimes, text(0), in(1, 2 * kTime)),
    PENUMBRA_CALL(waitid, out(2, kSiginfo), out(4, kUsage)),
    PENUMBRA_CALL(inotify_add_watch, text(1)),
    PENUMBRA_CALL(openat, text(1)),
    PENUMBRA_CALL(mkdirat, text(1)),
    PENUMBRA_CALL(mknodat, text(1)),
    PENUMBRA_CALL(fchownat, text(1)),
    PENUMBRA_CALL(futimesat, text(1), in(2, 2 * kTime)),
    PENUMBRA_CALL(newfstatat, text(1), out(2, kStat)),
    PENUMBRA_CALL(unlinkat, text(1)),
    PENUMBRA_CALL(renameat, text(1), text(3)),
    PENUMBRA_CALL(linkat, text(1), text(3)),
    PENUMBRA_CALL(symlinkat, text(0), text(2)),
    PENUMBRA_CALL(readlinkat, text(1), out_result(2, 3)),
    PENUMBRA_CALL(fchmodat, text(1)),
    PENUMBRA_CALL(faccessat, text(1)),
    PENUMBRA_CALL(pselect6, of(PointerKind::kSets, 1), in(4, kTime)),
    PENUMBRA_CALL(ppoll, in_sized(0, 1, kPoll), in(2, kTime), in_sized(3, 4)),
    PENUMBRA_CALL(utimensat, text(1), in(2, 2 * kTime)),
    PENUMBRA_CALL(epoll_pwait, out_result(1, 2, kEvent), in_sized(4, 5)),
    PENUMBRA_CALL(timerfd_settime, in(2, kTimer), out(3, kTimer)),
    PENUMBRA_CALL(timerfd_gettime, out(1, kTimer)),
    PENUMBRA_CALL(accept4, out_length(1, 2)),
    PENUMBRA_CALL(pipe2, out(0, 2 * kInt)),
    PENUMBRA_CALL(preadv, of(PointerKind::kVectorOut, 1, 2)),
    PENUMBRA_CALL(pwritev, of(PointerKind::kVectorIn, 1, 2)),
    PENUMBRA_CALL(recvmmsg, of(PointerKind::kMessagesOut, 1, 2)),
    PENUMBRA_CALL(sendmmsg, of(PointerKind::kMessagesIn, 1, 2)),
    PENUMBRA_CALL(renameat2, text(1), text(3)),
    PENUMBRA_CALL(getrandom, out_result(0, 1)),
    PENUMBRA_CALL(memfd_create, text(0)),
    PENUMBRA_CALL(copy_file_range, in(1, kLong), in(3, kLong)),
    PENUMBRA_CALL(preadv2, of(PointerKind::kVectorOut, 1, 2)),
    PENUMBRA_CALL(pwritev2, of(PointerKind::kVectorIn, 1, 2)),
    PENUMBRA_CALL(statx, text(1), out(4, kStatx)),
    PENUMBRA_CALL(openat2, text(1), in_sized(2, 3)),
    PENUMBRA_CALL(faccessat2, text(1)),
};
#undef PENUMBRA_CALL

consteval bool ascends() {
  for (std::size_t n = 1; n < kSystemCalls.size(); ++n) {
    if (kSystemCalls[n - 1].number >= kSystemCalls[n].number) return false;
  }
  return true;
}
static_assert(ascends(), "looked up by halving");

}  // namespace system_call_table

// Null for a call that is not in the table.
constexpr const SystemCall* find_system_call(std::int64_t number) {
  const auto& table = system_call_table::kSystemCalls;
  std::size_t low = 0;
  std::size_t high = table.size();
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (table[middle].number < number) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < table.size() && table[low].number == number ? &table[low] : nullptr;
}

// What an ioctl reads and writes behind its third argument; known is false for requests that are not listed.
struct ControlShape {
  std::uint16_t in = 0;
  std::uint16_t out = 0;
  bool known = false;
};

constexpr ControlShape control_shape(std::uint64_t request) {
  constexpr std::uint16_t kWindow = 8;
  constexpr std::uint16_t kTerminal = 36;  // struct termios of the kernel
  switch (request) {
    case 0x5413: return {0, kWindow, true};    // TIOCGWINSZ
    case 0x5414: return {kWindow, 0, true};    // TIOCSWINSZ
    case 0x5401: return {0, kTerminal, true};  // TCGETS
    case 0x5402:                               // TCSETS, TCSETSW, TCSETSF
    case 0x5403:
    case 0x5404: return {kTerminal, 0, true};
    case 0x541b:                           // FIONREAD
    case 0x5411:                           // TIOCOUTQ
    case 0x540f:                           // TIOCGPGRP
    case 0x5429:                           // TIOCGSID
    case 0x80045430: return {0, 4, true};  // TIOCGPTN
    case 0x5421:                           // FIONBIO
    case 0x5452:                           // FIOASYNC
    case 0x5410:                           // TIOCSPGRP
    case 0x40045431: return {4, 0, true};  // TIOCSPTLCK
    case 0x5450:  // FIONCLEX, FIOCLEX, TIOCSCTTY, TIOCNOTTY, TCSBRK, TCFLSH: a number or nothing
    case 0x5451:
    case 0x540e:
    case 0x5422:
    case 0x5409:
    case 0x540b: return {0, 0, true};
    default: return {};
  }
}

}  // namespace penumbra
