// read, write and their relatives, readlink, getcwd, random bytes: calls that move bytes between a descriptor (or the
// kernel) and a buffer.
//
// zone: signal-safe
#include <sys/ioctl.h>
#include <termios.h>

#include <cstdarg>

#include "instrument/libc/entry.h"
#include "instrument/libc/kernel_io.h"

namespace penumbra::libc {
namespace {

using Size = std::size_t;

// Room of the kernel's structure behind TCGETS and TCSETS*; libc's struct termios is longer.
constexpr Size kKernelTermiosBytes = 36;

// A path that the kernel or libc wrote into [to, ...), with its terminator.
void path_written(const Touch& touch, char* to, const char* result) {
  if (result == nullptr || to == nullptr) return;
  // The call wrote it, so reading it back is safe; only the writes are judged.
  touch.writes(to, unchecked_length(to) + 1);
}

// Bytes that a request reads (`in`) and writes (`out`); requests that are not listed are not checked.
struct IoctlShape {
  Size in = 0;
  Size out = 0;
};

IoctlShape ioctl_shape(unsigned long request) {
  switch (request) {
    case TIOCGWINSZ: return {0, sizeof(winsize)};
    case TIOCSWINSZ: return {sizeof(winsize), 0};
    case FIONREAD:
    case TIOCOUTQ:
    case TIOCGPGRP: return {0, sizeof(int)};
    case FIONBIO:
    case FIOASYNC:
    case TIOCSPGRP: return {sizeof(int), 0};
    case TCGETS: return {0, kKernelTermiosBytes};
    case TCSETS:
    case TCSETSW:
    case TCSETSF: return {kKernelTermiosBytes, 0};
    default: return {};
  }
}

}  // namespace

#define PENUMBRA_READS_FROM(name, parameters, arguments) \
  PENUMBRA_LIBC_CALL(ssize_t, name, parameters, arguments, , filled(touch, p, bytes, result))
PENUMBRA_READS_FROM(read, (int fd, void* p, Size bytes), (fd, p, bytes))
PENUMBRA_READS_FROM(__read, (int fd, void* p, Size bytes), (fd, p, bytes))
PENUMBRA_READS_FROM(__read_chk, (int fd, void* p, Size bytes, Size object), (fd, p, bytes, object))
PENUMBRA_READS_FROM(pread, (int fd, void* p, Size bytes, off_t at), (fd, p, bytes, at))
PENUMBRA_READS_FROM(pread64, (int fd, void* p, Size bytes, off64_t at), (fd, p, bytes, at))
PENUMBRA_READS_FROM(__pread64, (int fd, void* p, Size bytes, off64_t at), (fd, p, bytes, at))
PENUMBRA_READS_FROM(__pread_chk, (int fd, void* p, Size bytes, off_t at, Size object), (fd, p, bytes, at, object))
PENUMBRA_READS_FROM(__pread64_chk, (int fd, void* p, Size bytes, off64_t at, Size object), (fd, p, bytes, at, object))
PENUMBRA_READS_FROM(getrandom, (void* p, Size bytes, unsigned flags), (p, bytes, flags))
PENUMBRA_LIBC_CALL(int, getentropy, (void* p, Size bytes), (p, bytes), ,
                   filled(touch, p, bytes, result == 0 ? static_cast<long>(bytes) : result))

#define PENUMBRA_WRITES_TO(name, parameters, arguments) \
  PENUMBRA_LIBC(ssize_t, name, parameters, arguments, touch.kernel_reads(p, bytes))
PENUMBRA_WRITES_TO(write, (int fd, const void* p, Size bytes), (fd, p, bytes))
PENUMBRA_WRITES_TO(__write, (int fd, const void* p, Size bytes), (fd, p, bytes))
PENUMBRA_WRITES_TO(pwrite, (int fd, const void* p, Size bytes, off_t at), (fd, p, bytes, at))
PENUMBRA_WRITES_TO(pwrite64, (int fd, const void* p, Size bytes, off64_t at), (fd, p, bytes, at))
PENUMBRA_WRITES_TO(__pwrite64, (int fd, const void* p, Size bytes, off64_t at), (fd, p, bytes, at))

#define PENUMBRA_VECTOR(name, is_write, parameters, arguments) \
  PENUMBRA_LIBC_CALL(ssize_t, name, parameters, arguments, ,   \
                     vector_touched(touch, vector, static_cast<Size>(count), result, is_write))
PENUMBRA_VECTOR(readv, true, (int fd, const iovec* vector, int count), (fd, vector, count))
PENUMBRA_VECTOR(preadv, true, (int fd, const iovec* vector, int count, off_t at), (fd, vector, count, at))
PENUMBRA_VECTOR(preadv64, true, (int fd, const iovec* vector, int count, off64_t at), (fd, vector, count, at))
PENUMBRA_VECTOR(preadv2, true, (int fd, const iovec* vector, int count, off_t at, int flags),
                (fd, vector, count, at, flags))
PENUMBRA_VECTOR(preadv64v2, true, (int fd, const iovec* vector, int count, off64_t at, int flags),
                (fd, vector, count, at, flags))
PENUMBRA_VECTOR(writev, false, (int fd, const iovec* vector, int count), (fd, vector, count))
PENUMBRA_VECTOR(pwritev, false, (int fd, const iovec* vector, int count, off_t at), (fd, vector, count, at))
PENUMBRA_VECTOR(pwritev64, false, (int fd, const iovec* vector, int count, off64_t at), (fd, vector, count, at))
PENUMBRA_VECTOR(pwritev2, false, (int fd, const iovec* vector, int count, off_t at, int flags),
                (fd, vector, count, at, flags))
PENUMBRA_VECTOR(pwritev64v2, false, (int fd, const iovec* vector, int count, off64_t at, int flags),
                (fd, vector, count, at, flags))

#define PENUMBRA_READS_LINK(name, parameters, arguments)                                     \
  PENUMBRA_LIBC_CALL(ssize_t, name, parameters, arguments, , path_read(touch, path, result); \
                     filled(touch, p, bytes, result))
PENUMBRA_READS_LINK(readlink, (const char* path, char* p, Size bytes), (path, p, bytes))
PENUMBRA_READS_LINK(readlinkat, (int fd, const char* path, char* p, Size bytes), (fd, path, p, bytes))
PENUMBRA_READS_LINK(__readlink_chk, (const char* path, char* p, Size bytes, Size object), (path, p, bytes, object))
PENUMBRA_READS_LINK(__readlinkat_chk, (int fd, const char* path, char* p, Size bytes, Size object),
                    (fd, path, p, bytes, object))

PENUMBRA_LIBC_CALL(char*, getcwd, (char* to, Size bytes), (to, bytes), , path_written(touch, to, result))
PENUMBRA_LIBC_CALL(char*, __getcwd_chk, (char* to, Size bytes, Size object), (to, bytes, object), ,
                   path_written(touch, to, result))
// realpath(null) is an answer (EINVAL), not a crash.
PENUMBRA_LIBC_CALL(char*, realpath, (const char* path, char* to), (path, to), if (path != nullptr) touch.text(path),
                   path_written(touch, to, result))
PENUMBRA_LIBC_CALL(char*, __realpath_chk, (const char* path, char* to, Size object), (path, to, object),
                   if (path != nullptr) touch.text(path), path_written(touch, to, result))
PENUMBRA_LIBC_CALL(int, gethostname, (char* p, Size bytes), (p, bytes), ,
                   if (result == 0) touch.writes(p, std::min(bytes, unchecked_length(p) + 1)))
PENUMBRA_LIBC_CALL(int, __gethostname_chk, (char* p, Size bytes, Size object), (p, bytes, object), ,
                   if (result == 0) touch.writes(p, std::min(bytes, unchecked_length(p) + 1)))

// The third argument is a pointer, a number or not there at all: it is handed on as it came.
PENUMBRA_LIBC_CALL(int, ioctl, (int fd, unsigned long request, void* argument), (fd, request, argument),
                   const IoctlShape shape = ioctl_shape(request);
                   if (argument != nullptr) touch.kernel_reads(argument, shape.in),
                   if (argument != nullptr && result >= 0) touch.kernel_writes(argument, shape.out))

}  // namespace penumbra::libc
