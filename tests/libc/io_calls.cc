// Meson asks for 64-bit offsets, which would rename stat to stat64 and so on.
#undef _FILE_OFFSET_BITS

#include "tests/libc/io_calls.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

#include <cstdarg>
#include <cstdlib>
#include <string>

extern "C" {
ssize_t __read(int, void*, size_t);
ssize_t __write(int, const void*, size_t);
ssize_t __pread64(int, void*, size_t, off64_t);
ssize_t __pwrite64(int, const void*, size_t, off64_t);
ssize_t __read_chk(int, void*, size_t, size_t);
ssize_t __pread_chk(int, void*, size_t, off_t, size_t);
ssize_t __pread64_chk(int, void*, size_t, off64_t, size_t);
ssize_t __recv_chk(int, void*, size_t, size_t, int);
ssize_t __recvfrom_chk(int, void*, size_t, size_t, int, sockaddr*, socklen_t*);
ssize_t __readlink_chk(const char*, char*, size_t, size_t);
ssize_t __readlinkat_chk(int, const char*, char*, size_t, size_t);
char* __getcwd_chk(char*, size_t, size_t);
char* __realpath_chk(const char*, char*, size_t);
int __gethostname_chk(char*, size_t, size_t);
size_t __fread_chk(void*, size_t, size_t, size_t, FILE*);
size_t __fread_unlocked_chk(void*, size_t, size_t, size_t, FILE*);
char* __fgets_chk(char*, size_t, int, FILE*);
char* __fgets_unlocked_chk(char*, size_t, int, FILE*);
wchar_t* __fgetws_chk(wchar_t*, size_t, int, FILE*);
wchar_t* __fgetws_unlocked_chk(wchar_t*, size_t, int, FILE*);
int __sprintf_chk(char*, int, size_t, const char*, ...);
int __snprintf_chk(char*, size_t, int, size_t, const char*, ...);
int __vsprintf_chk(char*, int, size_t, const char*, va_list);
int __vsnprintf_chk(char*, size_t, int, size_t, const char*, va_list);
int __swprintf_chk(wchar_t*, size_t, int, size_t, const wchar_t*, ...);
int __vswprintf_chk(wchar_t*, size_t, int, size_t, const wchar_t*, va_list);
int __poll_chk(pollfd*, nfds_t, int, size_t);
int __ppoll_chk(pollfd*, nfds_t, const timespec*, const sigset_t*, size_t);
}

namespace penumbra::libc::testing {
namespace {

constexpr std::size_t kAny = ~std::size_t{0};
constexpr std::size_t kMost = 8192;

char scratch[kMost];

// A file that holds `count` bytes of 'x', read from its start.
int file_of(std::size_t count) {
  static const int fd = memfd_create("io_calls", 0);
  for (char& c : scratch) c = 'x';
  if (ftruncate(fd, 0) != 0 || pwrite(fd, scratch, count, 0) != static_cast<ssize_t>(count)) abort();
  lseek(fd, 0, SEEK_SET);
  return fd;
}

// A file that is written to.
int sink_file() {
  static const int fd = open("/dev/null", O_WRONLY);
  return fd;
}

int sink_memory() {
  static const int fd = memfd_create("sink", 0);
  return fd;
}

// A datagram socket on which `count` bytes wait.
int socket_with(std::size_t count) {
  static int pair[2] = {-1, -1};
  if (pair[0] < 0 && socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) != 0) abort();
  for (char& c : scratch) c = 'x';
  if (send(pair[1], scratch, count, 0) != static_cast<ssize_t>(count)) abort();
  return pair[0];
}

// A datagram socket whose data nobody wants: read again at once.
template <class Send>
void with_sink_socket(Send send_to) {
  static int pair[2] = {-1, -1};
  if (pair[0] < 0 && socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) != 0) abort();
  send_to(pair[1]);
  if (recv(pair[0], scratch, sizeof scratch, MSG_DONTWAIT) < 0) abort();
}

// A stream over a line of `count` characters with its newline, or without one (a block). Not fmemopen: that one
// cannot be read by wide characters.
FILE* stream_of(std::size_t count, bool is_line) {
  static FILE* stream = nullptr;
  if (stream != nullptr) fclose(stream);
  const int fd = dup(file_of(count));
  if (is_line && pwrite(fd, "\n", 1, static_cast<off_t>(count) - 1) != 1) abort();
  stream = fdopen(fd, "r");
  return stream;
}

FILE* sink_stream() {
  static FILE* const stream = fopen("/dev/null", "w");
  return stream;
}

FILE* wide_sink_stream() {
  static FILE* const stream = fopen("/dev/null", "w");
  return stream;
}

char* text(char* p, std::size_t count) {
  for (std::size_t i = 0; i + 1 < count; ++i) p[i] = 'x';
  p[count - 1] = '\0';
  return p;
}

wchar_t* text(wchar_t* p, std::size_t count) {
  for (std::size_t i = 0; i + 1 < count; ++i) p[i] = L'x';
  p[count - 1] = L'\0';
  return p;
}

// A symbolic link of `count` characters.
const char* link_of(std::size_t count) {
  static const std::string path = "/tmp/penumbra_io_calls_link." + std::to_string(getpid());
  unlink(path.c_str());
  if (symlink(std::string(count, 'x').c_str(), path.c_str()) != 0) abort();
  return path.c_str();
}

void remove_link() {
  unlink(link_of(2));
}

iovec split[2];

// Two buffers: the first half of [p, p+count), and the second.
iovec* halves(char* p, std::size_t count) {
  split[0] = {p, count / 2};
  split[1] = {p + count / 2, count - count / 2};
  return split;
}

msghdr* message(char* p, std::size_t count) {
  static msghdr header;
  header = {};
  header.msg_iov = halves(p, count);
  header.msg_iovlen = 2;
  return &header;
}

mmsghdr* messages(char* p, std::size_t count) {
  static mmsghdr header;
  header = {};
  header.msg_hdr = *message(p, count);
  return &header;
}

int format_list(int (*function)(va_list), ...) {
  va_list list;
  va_start(list, function);
  const int result = function(list);
  va_end(list);
  return result;
}

// What a lambda that takes a list cannot capture.
char* list_to;
std::size_t list_count;

wchar_t* wide(char* p) {
  return reinterpret_cast<wchar_t*>(p);
}

int width(std::size_t n) {
  return static_cast<int>(n) - 1;
}

template <class... T>
void use(T...) {}

#define IN(name, ...)                                            \
  {                                                              \
#name, false, 1, [](char* p, std::size_t n) { __VA_ARGS__; } \
  }
#define OUT(name, ...)                                          \
  {                                                             \
#name, true, 1, [](char* p, std::size_t n) { __VA_ARGS__; } \
  }
#define WIN(name, ...)                                                                                         \
  {                                                                                                            \
#name, false, sizeof(wchar_t), [](char* bytes, std::size_t n) { wchar_t* const p = wide(bytes); __VA_ARGS__; } \
  }
#define WOUT(name, ...)                                                                                       \
  {                                                                                                           \
#name, true, sizeof(wchar_t), [](char* bytes, std::size_t n) { wchar_t* const p = wide(bytes); __VA_ARGS__; } \
  }

const StreamCall kStreamCalls[] = {
    // More room than there is data: only what came is touched.
    OUT(read, use(read(file_of(n), p, n + 100))),
    OUT(__read, use(__read(file_of(n), p, n + 100))),
    OUT(__read_chk, use(__read_chk(file_of(n), p, n + 100, kAny))),
    OUT(pread, use(pread(file_of(n), p, n + 100, 0))),
    OUT(pread64, use(pread64(file_of(n), p, n + 100, 0))),
    OUT(__pread64, use(__pread64(file_of(n), p, n + 100, 0))),
    OUT(__pread_chk, use(__pread_chk(file_of(n), p, n + 100, 0, kAny))),
    OUT(__pread64_chk, use(__pread64_chk(file_of(n), p, n + 100, 0, kAny))),
    OUT(readv, use(readv(file_of(n), halves(p, n), 2))),
    OUT(preadv, use(preadv(file_of(n), halves(p, n + 50), 2, 0))),
    OUT(preadv64, use(preadv64(file_of(n), halves(p, n + 50), 2, 0))),
    OUT(preadv2, use(preadv2(file_of(n), halves(p, n + 50), 2, 0, 0))),
    OUT(preadv64v2, use(preadv64v2(file_of(n), halves(p, n + 50), 2, 0, 0))),
    OUT(getrandom, use(getrandom(p, n, 0))),
    OUT(
        getentropy, if (n <= 256) { use(getentropy(p, n)); } else {
          use(getentropy(p, 256));
          use(getentropy(p + n - 256, 256));
        }),
    IN(write, use(write(sink_file(), p, n))),
    IN(__write, use(__write(sink_file(), p, n))),
    IN(pwrite, use(pwrite(sink_memory(), p, n, 0))),
    IN(pwrite64, use(pwrite64(sink_memory(), p, n, 0))),
    IN(__pwrite64, use(__pwrite64(sink_memory(), p, n, 0))),
    IN(writev, use(writev(sink_file(), halves(p, n), 2))),
    IN(pwritev, use(pwritev(sink_memory(), halves(p, n), 2, 0))),
    IN(pwritev64, use(pwritev64(sink_memory(), halves(p, n), 2, 0))),
    IN(pwritev2, use(pwritev2(sink_memory(), halves(p, n), 2, 0, 0))),
    IN(pwritev64v2, use(pwritev64v2(sink_memory(), halves(p, n), 2, 0, 0))),
    OUT(readlink, use(readlink(link_of(n), p, n + 100)); remove_link()),
    OUT(readlinkat, use(readlinkat(AT_FDCWD, link_of(n), p, n + 100)); remove_link()),
    OUT(__readlink_chk, use(__readlink_chk(link_of(n), p, n + 100, kAny)); remove_link()),
    OUT(__readlinkat_chk, use(__readlinkat_chk(AT_FDCWD, link_of(n), p, n + 100, kAny)); remove_link()),

    // sockets
    OUT(recv, use(recv(socket_with(n), p, n + 100, 0))),
    OUT(__recv_chk, use(__recv_chk(socket_with(n), p, n + 100, kAny, 0))),
    OUT(recvfrom, use(recvfrom(socket_with(n), p, n + 100, 0, nullptr, nullptr))),
    OUT(__recvfrom_chk, use(__recvfrom_chk(socket_with(n), p, n + 100, kAny, 0, nullptr, nullptr))),
    // The kernel tells a longer datagram whole and stores what there is room for.
    OUT(recv, use(recv(socket_with(n + 100), p, n, MSG_TRUNC))),
    OUT(recvmsg, use(recvmsg(socket_with(n), message(p, n), 0))),
    OUT(recvmmsg, use(recvmmsg(socket_with(n), messages(p, n), 1, 0, nullptr))),
    IN(send, with_sink_socket([=](int fd) { use(send(fd, p, n, 0)); })),
    IN(sendto, with_sink_socket([=](int fd) { use(sendto(fd, p, n, 0, nullptr, 0)); })),
    IN(sendmsg, with_sink_socket([=](int fd) { use(sendmsg(fd, message(p, n), 0)); })),
    IN(sendmmsg, with_sink_socket([=](int fd) { use(sendmmsg(fd, messages(p, n), 1, 0)); })),

    // stdio
    OUT(fread, use(fread(p, 1, n + 100, stream_of(n, false)))),
    OUT(fread_unlocked, use(fread_unlocked(p, 1, n + 100, stream_of(n, false)))),
    OUT(__fread_chk, use(__fread_chk(p, kAny, 1, n + 100, stream_of(n, false)))),
    OUT(__fread_unlocked_chk, use(__fread_unlocked_chk(p, kAny, 1, n + 100, stream_of(n, false)))),
    IN(fwrite, use(fwrite(p, n, 1, sink_stream()))),
    IN(fwrite_unlocked, use(fwrite_unlocked(p, 1, n, sink_stream()))),
    OUT(fgets, use(fgets(p, 2000, stream_of(n - 1, true)))),
    OUT(fgets, use(fgets(p, static_cast<int>(n), stream_of(n + 100, false)))),
    OUT(fgets_unlocked, use(fgets_unlocked(p, 2000, stream_of(n - 1, true)))),
    OUT(__fgets_chk, use(__fgets_chk(p, kAny, 2000, stream_of(n - 1, true)))),
    OUT(__fgets_unlocked_chk, use(__fgets_unlocked_chk(p, kAny, 2000, stream_of(n - 1, true)))),
    WOUT(fgetws, use(fgetws(p, 2000, stream_of(n - 1, true)))),
    WOUT(fgetws_unlocked, use(fgetws_unlocked(p, 2000, stream_of(n - 1, true)))),
    WOUT(__fgetws_chk, use(__fgetws_chk(p, kAny, 2000, stream_of(n - 1, true)))),
    WOUT(__fgetws_unlocked_chk, use(__fgetws_unlocked_chk(p, kAny, 2000, stream_of(n - 1, true)))),
    IN(fputs, use(fputs(text(p, n), sink_stream()))),
    IN(fputs_unlocked, use(fputs_unlocked(text(p, n), sink_stream()))),
    WIN(fputws, use(fputws(text(p, n), wide_sink_stream()))),
    WIN(fputws_unlocked, use(fputws_unlocked(text(p, n), wide_sink_stream()))),
    OUT(sprintf, use(sprintf(p, "%*d", width(n), 7))),
    OUT(snprintf, use(snprintf(p, n + 100, "%*d", width(n), 7))),
    OUT(snprintf, use(snprintf(p, n, "%*d", width(n) + 100, 7))),
    IN(snprintf, use(snprintf(scratch, sizeof scratch, text(p, n)))),
    OUT(__sprintf_chk, use(__sprintf_chk(p, 1, kAny, "%*d", width(n), 7))),
    OUT(__snprintf_chk, use(__snprintf_chk(p, n, 1, kAny, "%*d", width(n) + 100, 7))),
    OUT(vsprintf, list_to = p;
        use(format_list([](va_list list) { return vsprintf(list_to, "%*d", list); }, width(n), 7))),
    OUT(vsnprintf, list_to = p; list_count = n;
        use(format_list([](va_list list) { return vsnprintf(list_to, list_count, "%*d", list); }, width(n) + 9, 7))),
    OUT(__vsprintf_chk, list_to = p;
        use(format_list([](va_list list) { return __vsprintf_chk(list_to, 1, kAny, "%*d", list); }, width(n), 7))),
    OUT(__vsnprintf_chk, list_to = p; list_count = n; use(format_list(
        [](va_list list) { return __vsnprintf_chk(list_to, list_count, 1, kAny, "%*d", list); }, width(n) + 9, 7))),
    WOUT(swprintf, use(swprintf(p, n + 100, L"%*d", width(n), 7))),
    WOUT(__swprintf_chk, use(__swprintf_chk(p, n + 100, 1, kAny, L"%*d", width(n), 7))),
    WOUT(vswprintf, list_to = reinterpret_cast<char*>(p);
         use(format_list([](va_list list) { return vswprintf(wide(list_to), 2000, L"%*d", list); }, width(n), 7))),
    WOUT(__vswprintf_chk, list_to = reinterpret_cast<char*>(p); use(format_list(
        [](va_list list) { return __vswprintf_chk(wide(list_to), 2000, 1, kAny, L"%*d", list); }, width(n), 7))),
};

int a_child() {
  const pid_t pid = fork();
  if (pid == 0) _exit(0);
  return pid;
}

void with_unix_name(void (*function)(int fd, sockaddr_un* name, socklen_t* bytes)) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "penumbra-io-%d", getpid());
  socklen_t bytes = sizeof name;
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
  bind(fd, reinterpret_cast<sockaddr*>(&name), bytes);
  listen(fd, 1);
  function(fd, &name, &bytes);
  close(fd);
}

void* structure;

#define FILLS(name, type, ...)                                                                  \
  {                                                                                             \
#name, true, sizeof(type), [](void* p) { auto* const to = static_cast<type*>(p); __VA_ARGS__; } \
  }
#define TAKES(name, type, ...)                                                                   \
  {                                                                                              \
#name, false, sizeof(type), [](void* p) { auto* const to = static_cast<type*>(p); __VA_ARGS__; } \
  }

using DescriptorPair = int[2];

void close_both(const int* pair) {
  close(pair[0]);
  close(pair[1]);
}

epoll_event* waiting(int* epoll) {
  static int fds[2];
  static epoll_event event;
  if (pipe(fds) != 0) abort();
  *epoll = epoll_create1(0);
  event = {EPOLLOUT, {}};
  epoll_ctl(*epoll, EPOLL_CTL_ADD, fds[1], &event);
  return &event;
}

const StructureCall kStructureCalls[] = {
    FILLS(stat, struct stat, stat("/", to)),
    FILLS(stat64, struct stat64, stat64("/", to)),
    FILLS(lstat, struct stat, lstat("/", to)),
    FILLS(lstat64, struct stat64, lstat64("/", to)),
    FILLS(fstat, struct stat, fstat(0, to)),
    FILLS(fstat64, struct stat64, fstat64(0, to)),
    FILLS(fstatat, struct stat, fstatat(AT_FDCWD, "/", to, 0)),
    FILLS(fstatat64, struct stat64, fstatat64(AT_FDCWD, "/", to, 0)),
    FILLS(statx, struct statx, statx(AT_FDCWD, "/", 0, STATX_ALL, to)),
    FILLS(statfs, struct statfs, statfs("/", to)),
    FILLS(statfs64, struct statfs64, statfs64("/", to)),
    FILLS(fstatfs, struct statfs, fstatfs(0, to)),
    FILLS(fstatfs64, struct statfs64, fstatfs64(0, to)),
    FILLS(statvfs, struct statvfs, statvfs("/", to)),
    FILLS(statvfs64, struct statvfs64, statvfs64("/", to)),
    FILLS(fstatvfs, struct statvfs, fstatvfs(0, to)),
    FILLS(fstatvfs64, struct statvfs64, fstatvfs64(0, to)),
    FILLS(gettimeofday, timeval, gettimeofday(to, nullptr)),
    FILLS(clock_gettime, timespec, clock_gettime(CLOCK_MONOTONIC, to)),
    FILLS(clock_getres, timespec, clock_getres(CLOCK_MONOTONIC, to)),
    FILLS(time, time_t, time(to)),
    FILLS(times, tms, times(to)),
    FILLS(getrusage, rusage, getrusage(RUSAGE_SELF, to)),
    FILLS(getitimer, itimerval, getitimer(ITIMER_REAL, to)),
    FILLS(uname, utsname, uname(to)),
    FILLS(sysinfo, struct sysinfo, sysinfo(to)),
    TAKES(nanosleep, timespec, *to = {0, 1}; nanosleep(to, nullptr)),
    FILLS(wait, int, a_child(); wait(to)),
    FILLS(waitpid, int, waitpid(a_child(), to, 0)),
    FILLS(wait3, rusage, a_child(); wait3(nullptr, 0, to)),
    FILLS(wait4, rusage, wait4(a_child(), nullptr, 0, to)),
    FILLS(waitid, siginfo_t, waitid(P_PID, static_cast<id_t>(a_child()), to, WEXITED)),
    FILLS(poll, pollfd, *to = {}; poll(to, 1, 0)),
    FILLS(ppoll, pollfd, *to = {}; const timespec now{}; ppoll(to, 1, &now, nullptr)),
    FILLS(__poll_chk, pollfd, *to = {}; __poll_chk(to, 1, 0, kAny)),
    FILLS(__ppoll_chk, pollfd, *to = {}; const timespec now{}; __ppoll_chk(to, 1, &now, nullptr, kAny)),
    FILLS(
        select, fd_set,
        for (long& word
             : to->fds_bits) { word = 0; } timeval now{};
        select(FD_SETSIZE, to, nullptr, nullptr, &now)),
    FILLS(select, timeval, *to = {}; select(0, nullptr, nullptr, nullptr, to)),
    FILLS(
        pselect, fd_set,
        for (long& word
             : to->fds_bits) { word = 0; } timespec now{};
        pselect(FD_SETSIZE, to, nullptr, nullptr, &now, nullptr)),
    FILLS(epoll_wait, epoll_event, int fd; waiting(&fd); epoll_wait(fd, to, 9, 0); close(fd)),
    FILLS(epoll_pwait, epoll_event, int fd; waiting(&fd); epoll_pwait(fd, to, 9, 0, nullptr); close(fd)),
    FILLS(epoll_pwait2, epoll_event, int fd; waiting(&fd); const timespec now{};
          epoll_pwait2(fd, to, 9, &now, nullptr); close(fd)),
    TAKES(epoll_ctl, epoll_event, int fds[2]; use(pipe(fds)); const int fd = epoll_create1(0); *to = {EPOLLIN, {}};
          epoll_ctl(fd, EPOLL_CTL_ADD, fds[0], to); close(fd); close_both(fds)),
    FILLS(pipe, DescriptorPair, use(pipe(*to)); close_both(*to)),
    FILLS(pipe2, DescriptorPair, use(pipe2(*to, O_CLOEXEC)); close_both(*to)),
    FILLS(socketpair, DescriptorPair, use(socketpair(AF_UNIX, SOCK_STREAM, 0, *to)); close_both(*to)),
    FILLS(ioctl, int, int fds[2]; use(pipe(fds)); ioctl(fds[0], FIONREAD, to); close_both(fds)),
    TAKES(ioctl, int, int fds[2]; use(pipe(fds)); *to = 1; ioctl(fds[0], FIONBIO, to); close_both(fds)),
    FILLS(getsockopt, int, int fds[2]; socklen_t bytes = sizeof(int); use(socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
          getsockopt(fds[0], SOL_SOCKET, SO_TYPE, to, &bytes); close_both(fds)),
    TAKES(setsockopt, int, int fds[2]; use(socketpair(AF_UNIX, SOCK_STREAM, 0, fds)); *to = 1;
          setsockopt(fds[0], SOL_SOCKET, SO_KEEPALIVE, to, sizeof(int)); close_both(fds)),
    TAKES(bind, sockaddr_un, structure = p; *to = {}; to->sun_family = AF_UNIX;
          const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
          bind(fd, static_cast<sockaddr*>(structure), sizeof(sockaddr_un)); close(fd)),
    TAKES(connect, sockaddr_un, *to = {}; to->sun_family = AF_UNIX; const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
          connect(fd, reinterpret_cast<sockaddr*>(to), sizeof *to); close(fd)),
    FILLS(getsockname, sockaddr_un, structure = p; use(to);
          with_unix_name([](int fd, sockaddr_un*, socklen_t* bytes) {
            getsockname(fd, static_cast<sockaddr*>(structure), bytes);
          })),
    FILLS(getpeername, sockaddr_un, structure = p; use(to);
          with_unix_name([](int fd, sockaddr_un* name, socklen_t* bytes) {
            const int other = socket(AF_UNIX, SOCK_STREAM, 0);
            connect(other, reinterpret_cast<sockaddr*>(name), *bytes);
            getpeername(other, static_cast<sockaddr*>(structure), bytes);
            close(other);
            use(fd);
          })),
};

}  // namespace

std::span<const StreamCall> stream_calls() {
  return kStreamCalls;
}

std::span<const StructureCall> structure_calls() {
  return kStructureCalls;
}

}  // namespace penumbra::libc::testing
