// One bug for each family of libc calls, on a heap block: families NAME [KIND]
//
// KIND: over (one character too many; the default) or freed (the block is freed before the call). Compiled with
// -D_FORTIFY_SOURCE=2 and stripped, as distributions do. The block's size comes through a volatile variable, so that
// the fortified forms are called and do not know it: what they cannot see is left to the checks.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#include <wchar.h>

static volatile size_t block_bytes = 40;
static int freed;
static char other[256];
static wchar_t wide_other[256];
static int ends[2];

static char* block(void) {
  char* p = malloc(block_bytes);
  memset(p, 'x', block_bytes);
  if (freed) free(p);
  return p;
}

static size_t n(void) { return block_bytes + 1; }

// A file of 41 bytes that waits to be read.
static int source(void) {
  int fd = memfd_create("families", 0);
  if (write(fd, other, n()) < 0) exit(3);
  lseek(fd, 0, SEEK_SET);
  return fd;
}

static void fill_socket(void) {
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0 || send(ends[1], other, n(), 0) < 0) exit(3);
}

static volatile size_t sink;

static void run(const char* name) {
  char* p;
  if (!strcmp(name, "memcpy")) p = block(), memcpy(p, other, n());
  // gcc knows "at most 80 bytes", so it calls __memcpy_chk with 80; the block has 40.
  else if (!strcmp(name, "fortified")) p = block_bytes == 40 ? malloc(40) : malloc(80), freed ? free(p) : (void)0, memcpy(p, other, n());
  else if (!strcmp(name, "memmove")) p = block(), memmove(other, p, n());
  else if (!strcmp(name, "memset")) p = block(), memset(p, 0, n());
  else if (!strcmp(name, "memcmp")) p = block(), sink = memcmp(p, memset(other, 'x', n()), n());
  else if (!strcmp(name, "memchr")) p = block(), sink = memchr(p, 'y', n()) != 0;
  else if (!strcmp(name, "strlen")) p = block(), sink = strlen(p);
  else if (!strcmp(name, "strcpy")) p = block(), strcpy(p, memset(other, 'y', block_bytes));
  else if (!strcmp(name, "strncpy")) p = block(), strncpy(p, other, n());
  else if (!strcmp(name, "strcat")) p = block(), p[0] = freed ? p[0] : 0, strcat(p, memset(other, 'y', block_bytes));
  else if (!strcmp(name, "strcmp")) p = block(), sink = strcmp(p, memset(other, 'x', block_bytes + 2));
  else if (!strcmp(name, "strchr")) p = block(), sink = strchr(p, 'y') != 0;
  else if (!strcmp(name, "strdup")) p = block(), sink = (size_t)strdup(p);
  else if (!strcmp(name, "strtok")) p = block(), sink = (size_t)strtok(p, ",");
  else if (!strcmp(name, "wmemcpy")) p = block(), wmemcpy((wchar_t*)p, wide_other, block_bytes / 4 + 1);
  else if (!strcmp(name, "wcslen")) p = block(), sink = wcslen((wchar_t*)p);
  else if (!strcmp(name, "wcscpy")) p = block(), wmemset(wide_other, L'y', block_bytes / 4), wcscpy((wchar_t*)p, wide_other);
  else if (!strcmp(name, "read")) p = block(), sink = read(source(), p, n());
  else if (!strcmp(name, "pread")) p = block(), sink = pread(source(), p, n(), 0);
  else if (!strcmp(name, "readv")) { p = block(); struct iovec v = {p, n()}; sink = readv(source(), &v, 1); }
  else if (!strcmp(name, "write")) p = block(), sink = write(open("/dev/null", O_WRONLY), p, n());
  else if (!strcmp(name, "recv")) fill_socket(), p = block(), sink = recv(ends[0], p, n(), 0);
  else if (!strcmp(name, "send")) fill_socket(), p = block(), sink = send(ends[0], p, n(), 0);
  else if (!strcmp(name, "recvmsg")) {
    fill_socket();
    p = block();
    struct iovec v = {p, n()};
    struct msghdr message = {.msg_iov = &v, .msg_iovlen = 1};
    sink = recvmsg(ends[0], &message, 0);
  } else if (!strcmp(name, "fread")) { FILE* f = fdopen(source(), "r"); p = block(); sink = fread(p, 1, n(), f); }
  else if (!strcmp(name, "fwrite")) { FILE* f = fopen("/dev/null", "w"); p = block(); sink = fwrite(p, 1, n(), f); }
  else if (!strcmp(name, "fgets")) { memset(other, 'y', n()); FILE* f = fdopen(source(), "r"); p = block(); sink = (size_t)fgets(p, n(), f); }
  else if (!strcmp(name, "fputs")) { FILE* f = fopen("/dev/null", "w"); p = block(); sink = fputs(p, f); }
  else if (!strcmp(name, "snprintf")) p = block(), sink = snprintf(p, n(), "%60d", 7);
  else if (!strcmp(name, "sprintf")) p = block(), sink = sprintf(p, "%40d", 7);
  else if (!strcmp(name, "stat")) p = block(), sink = stat("/", (struct stat*)p);
  else if (!strcmp(name, "getcwd")) { if (chdir("/usr/share/common-licenses/../../include/linux/usb") != 0 && chdir("/usr") != 0) exit(3);
    block_bytes = 4; p = block(); sink = (size_t)getcwd(p, 200); }
  else if (!strcmp(name, "poll")) p = block(), memset(p, 255, freed ? 0 : block_bytes), sink = poll((struct pollfd*)p, block_bytes / 8 + 1, 0);
  else if (!strcmp(name, "overlap")) memcpy(other + 4, other, block_bytes);
  else exit(4);
}

int main(int argc, char** argv) {
  freed = argc > 2 && !strcmp(argv[2], "freed");
  run(argv[1]);
  puts("went on");
  return 0;
}
