// Bad memory that only the kernel touches: system_call_bugs NUMBER.
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define BUG static __attribute__((noinline)) void

static long make_call(long number, long a, long b, long c) {
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
  return result;
}

static char* full(size_t bytes) { return memset(malloc(bytes), 'x', bytes); }

static void* freed(size_t bytes) {
  void* p = full(bytes);
  free(p);
  return p;
}

BUG read_too_much(void) { read(open("/dev/zero", O_RDONLY), malloc(10), 20); }

BUG write_what_is_freed(void) { write(open("/dev/null", O_WRONLY), freed(30), 30); }

BUG call_with_too_much(void) { syscall(SYS_write, open("/dev/null", O_WRONLY), full(24), 40); }

BUG instruction_with_too_much(void) { make_call(SYS_write, open("/dev/null", O_WRONLY), (long)full(24), 40); }

BUG instruction_of_no_known_number(void) {
  volatile long number = SYS_read;
  make_call(number, open("/dev/zero", O_RDONLY), (long)malloc(10), 20);
}

BUG path_without_end(void) { open(full(16), O_RDONLY); }

BUG status_into_small(void) { stat("/", malloc(sizeof(struct stat) - 8)); }

BUG vector_into_small(void) {
  struct iovec parts[2] = {{malloc(8), 8}, {malloc(8), 16}};
  readv(open("/dev/zero", O_RDONLY), parts, 2);
}

BUG folder_into_small(void) {
  chdir("/usr/lib");
  getcwd(malloc(4), 100);
}

BUG pipe_into_small(void) { pipe(malloc(4)); }

BUG name_into_small(void) {
  socklen_t length = sizeof(struct sockaddr_un);
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  struct sockaddr_un name = {AF_UNIX, "\0penumbra-test-of-a-name"};
  bind(fd, (struct sockaddr*)&name, sizeof name);
  getsockname(fd, malloc(8), &length);
}

BUG poll_too_many(void) {
  struct pollfd* p = malloc(sizeof *p);
  *p = (struct pollfd){-1, 0, 0};
  poll(p, 2, 0);
}

BUG sleep_for_no_time(void) { nanosleep(memset(malloc(8), 0, 8), NULL); }

BUG random_too_much(void) { getrandom(malloc(6), 12, 0); }

BUG message_from_freed(void) {
  int pair[2];
  socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
  struct iovec part = {freed(16), 16};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
  sendmsg(pair[0], &message, 0);
}

BUG control_into_small(void) {
  int pair[2];
  pipe(pair);
  ioctl(pair[0], FIONREAD, malloc(2));
}

BUG lock_into_small(void) {
  struct flock* lock = memset(malloc(16), 0, 16);
  fcntl(open("/etc/passwd", O_RDONLY), F_GETLK, lock);
}

BUG time_into_small(void) { clock_gettime(CLOCK_MONOTONIC, malloc(8)); }

// Right, unless all that may be written is asked for.
BUG ask_for_more_than_there_is_room(void) {
  int pair[2];
  pipe(pair);
  write(pair[1], "12345", 5);
  read(pair[0], malloc(8), 100);
}

typedef void (*Bug)(void);
static const Bug bugs[] = {
    read_too_much,     write_what_is_freed, call_with_too_much, instruction_with_too_much, instruction_of_no_known_number,
    path_without_end,  status_into_small,   vector_into_small,  folder_into_small,         pipe_into_small,
    name_into_small,   poll_too_many,       sleep_for_no_time,  random_too_much,           message_from_freed,
    control_into_small, lock_into_small,    time_into_small,    ask_for_more_than_there_is_room,
};

int main(int argc, char** argv) {
  const int number = argc > 1 ? atoi(argv[1]) : -1;
  if (number >= 0 && number < (int)(sizeof bugs / sizeof *bugs)) bugs[number]();
  puts("end");
  return 0;
}
