// System calls that fill small structures of a known size: file status, time, usage, waiting, polling.
//
// zone: signal-safe
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/times.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>

#include "instrument/libc/entry.h"
#include "instrument/libc/kernel_io.h"

namespace penumbra::libc {
namespace {

using Size = std::size_t;

// The kernel reads and writes sets in words of 64 descriptors.
void sets_used(const Touch& touch, int count, fd_set* a, fd_set* b, fd_set* c) {
  if (count <= 0) return;
  const Size bytes = (static_cast<Size>(count) + 63) / 64 * 8;
  for (fd_set* set : {a, b, c}) {
    if (set != nullptr) touch.kernel_writes(set, bytes);
  }
}

// More descriptors than an int can count are refused before the array is looked at.
void polled(const Touch& touch, pollfd* fds, nfds_t count) {
  if (count <= INT_MAX) touch.kernel_writes(fds, count * sizeof *fds);
}

void events_stored(const Touch& touch, epoll_event* events, int most, int result) {
  filled(touch, events, most > 0 ? static_cast<Size>(most) * sizeof *events : 0,
         result > 0 ? static_cast<long>(static_cast<Size>(result) * sizeof *events) : result);
}

}  // namespace

// --- File status ----------------------------------------------------------------------------------------------------

#define PENUMBRA_STATUS_OF_PATH(name, Status)                                                                 \
  PENUMBRA_LIBC_CALL(int, name, (const char* path, Status* to), (path, to), , path_read(touch, path, result); \
                     stored(touch, to, result))
#define PENUMBRA_STATUS_OF_DESCRIPTOR(name, Status) \
  PENUMBRA_LIBC_CALL(int, name, (int fd, Status* to), (fd, to), , stored(touch, to, result))
PENUMBRA_STATUS_OF_PATH(stat, struct stat)
PENUMBRA_STATUS_OF_PATH(stat64, struct stat64)
PENUMBRA_STATUS_OF_PATH(lstat, struct stat)
PENUMBRA_STATUS_OF_PATH(lstat64, struct stat64)
PENUMBRA_STATUS_OF_PATH(statfs, struct statfs)
PENUMBRA_STATUS_OF_PATH(statfs64, struct statfs64)
PENUMBRA_STATUS_OF_PATH(statvfs, struct statvfs)
PENUMBRA_STATUS_OF_PATH(statvfs64, struct statvfs64)
PENUMBRA_STATUS_OF_DESCRIPTOR(fstat, struct stat)
PENUMBRA_STATUS_OF_DESCRIPTOR(fstat64, struct stat64)
PENUMBRA_STATUS_OF_DESCRIPTOR(fstatfs, struct statfs)
PENUMBRA_STATUS_OF_DESCRIPTOR(fstatfs64, struct statfs64)
PENUMBRA_STATUS_OF_DESCRIPTOR(fstatvfs, struct statvfs)
PENUMBRA_STATUS_OF_DESCRIPTOR(fstatvfs64, struct statvfs64)
#define PENUMBRA_STATUS_AT(name, Status)                                                                    \
  PENUMBRA_LIBC_CALL(int, name, (int fd, const char* path, Status* to, int flags), (fd, path, to, flags), , \
                     path_read(touch, path, result);                                                        \
                     stored(touch, to, result))
PENUMBRA_STATUS_AT(fstatat, struct stat)
PENUMBRA_STATUS_AT(fstatat64, struct stat64)
PENUMBRA_LIBC_CALL(int, statx, (int fd, const char* path, int flags, unsigned mask, struct statx* to),
                   (fd, path, flags, mask, to), , path_read(touch, path, result);
                   stored(touch, to, result))
// What programs linked before glibc 2.33 call instead.
#define PENUMBRA_OLD_STATUS_OF_PATH(name, Status)                                                   \
  PENUMBRA_LIBC_CALL(int, name, (int version, const char* path, Status* to), (version, path, to), , \
                     path_read(touch, path, result);                                                \
                     stored(touch, to, result))
PENUMBRA_OLD_STATUS_OF_PATH(__xstat, struct stat)
PENUMBRA_OLD_STATUS_OF_PATH(__xstat64, struct stat64)
PENUMBRA_OLD_STATUS_OF_PATH(__lxstat, struct stat)
PENUMBRA_OLD_STATUS_OF_PATH(__lxstat64, struct stat64)
PENUMBRA_LIBC_CALL(int, __fxstat, (int version, int fd, struct stat* to), (version, fd, to), ,
                   stored(touch, to, result))
PENUMBRA_LIBC_CALL(int, __fxstat64, (int version, int fd, struct stat64* to), (version, fd, to), ,
                   stored(touch, to, result))
PENUMBRA_LIBC_CALL(int, __fxstatat, (int version, int fd, const char* path, struct stat* to, int flags),
                   (version, fd, path, to, flags), , path_read(touch, path, result);
                   stored(touch, to, result))
PENUMBRA_LIBC_CALL(int, __fxstatat64, (int version, int fd, const char* path, struct stat64* to, int flags),
                   (version, fd, path, to, flags), , path_read(touch, path, result);
                   stored(touch, to, result))

// --- Time and usage -------------------------------------------------------------------------------------------------

// These are served without a system call: a bad pointer is a crash there, and a check before it.
PENUMBRA_LIBC_CALL(int, gettimeofday, (timeval * to, void* zone), (to, zone), , stored(touch, to, result))
PENUMBRA_LIBC_CALL(int, clock_gettime, (clockid_t clock, timespec* to), (clock, to), , stored(touch, to, result))
PENUMBRA_LIBC_CALL(int, clock_getres, (clockid_t clock, timespec* to), (clock, to), , stored(touch, to, result))
PENUMBRA_LIBC_CALL(time_t, time, (time_t * to), (to), , stored(touch, to, result))
PENUMBRA_LIBC_CALL(clock_t, times, (tms * to), (to), , stored(touch, to, result))
PENUMBRA_LIBC_CALL(int, getrusage, (int who, rusage* to), (who, to), , stored(touch, to, result))
PENUMBRA_LIBC_CALL(int, getitimer, (int which, itimerval* to), (which, to), , stored(touch, to, result))
PENUMBRA_LIBC_CALL(int, uname, (utsname * to), (to), , stored(touch, to, result))
PENUMBRA_LIBC_CALL(int, sysinfo, (struct sysinfo * to), (to), , stored(touch, to, result))
PENUMBRA_LIBC_CALL(int, nanosleep, (const timespec* how_long, timespec* left), (how_long, left),
                   touch.kernel_reads(how_long, sizeof *how_long),
                   if (result == -1 && errno == EINTR) stored(touch, left, 0))

// --- Waiting and polling --------------------------------------------------------------------------------------------

// `status` is written when a child was waited for.
PENUMBRA_LIBC_CALL(pid_t, wait, (int* status), (status), , if (result > 0) stored(touch, status, result))
PENUMBRA_LIBC_CALL(pid_t, waitpid, (pid_t pid, int* status, int options), (pid, status, options), ,
                   if (result > 0) stored(touch, status, result))
PENUMBRA_LIBC_CALL(
    pid_t, wait3, (int* status, int options, rusage* usage), (status, options, usage), , if (result > 0) {
      stored(touch, status, result);
      stored(touch, usage, result);
    })
PENUMBRA_LIBC_CALL(
    pid_t, wait4, (pid_t pid, int* status, int options, rusage* usage), (pid, status, options, usage), ,
    if (result > 0) {
      stored(touch, status, result);
      stored(touch, usage, result);
    })
PENUMBRA_LIBC_CALL(int, waitid, (idtype_t type, id_t id, siginfo_t* info, int options), (type, id, info, options), ,
                   stored(touch, info, result))

#define PENUMBRA_POLLS(name, parameters, arguments) \
  PENUMBRA_LIBC(int, name, parameters, arguments, polled(touch, fds, count))
PENUMBRA_POLLS(poll, (pollfd * fds, nfds_t count, int timeout), (fds, count, timeout))
PENUMBRA_POLLS(__poll, (pollfd * fds, nfds_t count, int timeout), (fds, count, timeout))
PENUMBRA_POLLS(ppoll, (pollfd * fds, nfds_t count, const timespec* timeout, const sigset_t* mask),
               (fds, count, timeout, mask))
PENUMBRA_POLLS(__poll_chk, (pollfd * fds, nfds_t count, int timeout, Size object), (fds, count, timeout, object))
PENUMBRA_POLLS(__ppoll_chk, (pollfd * fds, nfds_t count, const timespec* timeout, const sigset_t* mask, Size object),
               (fds, count, timeout, mask, object))

PENUMBRA_LIBC(int, select, (int count, fd_set* a, fd_set* b, fd_set* c, timeval* timeout), (count, a, b, c, timeout),
              sets_used(touch, count, a, b, c);
              if (timeout != nullptr) touch.kernel_writes(timeout, sizeof *timeout))
PENUMBRA_LIBC(int, pselect,
              (int count, fd_set* a, fd_set* b, fd_set* c, const timespec* timeout, const sigset_t* mask),
              (count, a, b, c, timeout, mask), sets_used(touch, count, a, b, c);
              if (timeout != nullptr) touch.kernel_reads(timeout, sizeof *timeout))

PENUMBRA_LIBC_CALL(int, epoll_wait, (int fd, epoll_event* events, int most, int timeout), (fd, events, most, timeout),
                   , events_stored(touch, events, most, result))
PENUMBRA_LIBC_CALL(int, epoll_pwait, (int fd, epoll_event* events, int most, int timeout, const sigset_t* mask),
                   (fd, events, most, timeout, mask), , events_stored(touch, events, most, result))
PENUMBRA_LIBC_CALL(int, epoll_pwait2,
                   (int fd, epoll_event* events, int most, const timespec* timeout, const sigset_t* mask),
                   (fd, events, most, timeout, mask), , events_stored(touch, events, most, result))
PENUMBRA_LIBC(int, epoll_ctl, (int fd, int operation, int target, epoll_event* event), (fd, operation, target, event),
              if (event != nullptr && operation != EPOLL_CTL_DEL) touch.kernel_reads(event, sizeof *event))

}  // namespace penumbra::libc
