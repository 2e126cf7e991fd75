// Bugs that only libc's own code, or the kernel on its behalf, touches memory for: libc_bugs NUMBER.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define BUG static __attribute__((noinline)) void

static int up(const void* a, const void* b) { return *(const int*)a - *(const int*)b; }

static __attribute__((noinline)) int compare_beyond(const void* a, const void* b) {
  return ((const int*)a)[4] - ((const int*)b)[4];
}

// A block full of one character, without a terminator.
static char* full(size_t bytes, char c) {
  char* p = malloc(bytes);
  for (size_t i = 0; i < bytes; ++i) p[i] = c;
  return p;
}

BUG sort_too_many(void) {
  int* p = malloc(4 * sizeof *p);
  for (int i = 0; i < 4; ++i) p[i] = 4 - i;
  qsort(p, 6, sizeof *p, up);
}

BUG sort_by_what_is_not_there(void) {
  int* p = calloc(4, sizeof *p);
  qsort(p, 4, sizeof *p, compare_beyond);
}

BUG search_too_many(void) {
  int* p = calloc(4, sizeof *p);
  const int wanted = 7;
  bsearch(&wanted, p, 12, sizeof *p, up);
}

BUG tokens_of_no_text(void) { strtok(full(24, 'x'), ","); }

BUG print_no_text(void) {
  FILE* out = fopen("/dev/null", "w");
  fprintf(out, "%s", full(24, 'x'));
  fclose(out);
}

BUG print_too_much(void) {
  char* p = malloc(16);
  volatile size_t lie = 64;
  snprintf(p, lie, "%d and a text of some length", 1234567);
}

BUG line_into_freed(void) {
  FILE* in = fopen("/etc/passwd", "r");
  size_t size = 64;
  char* line = malloc(size);
  free(line);
  getline(&line, &size, in);
}

BUG scan_into_small(void) {
  char* p = malloc(8);
  sscanf("a_word_of_some_length 1", "%s", p);
}

BUG scan_number_into_small(void) {
  short* p = malloc(sizeof *p);
  sscanf("12345", "%d", (int*)p);
}

BUG read_block_into_small(void) {
  FILE* in = fopen("/etc/passwd", "r");
  char* p = malloc(20);
  fread(p, 1, 30, in);
}

BUG read_line_into_small(void) {
  FILE* in = fopen("/etc/passwd", "r");
  char* p = malloc(5);
  volatile int lie = 100;
  fgets(p, lie, in);
}

BUG number_without_end(void) { strtol(full(8, '7'), NULL, 10); }

BUG real_number_without_end(void) { strtod(full(8, '7'), NULL); }

BUG address_without_end(void) {
  struct in_addr to;
  inet_pton(AF_INET, full(8, '1'), &to);
}

BUG time_into_small(void) {
  struct tm* p = malloc(32);
  const time_t when = 0;
  gmtime_r(&when, p);
}

BUG variable_without_end(void) { setenv("PENUMBRA_TEST", full(24, 'x'), 1); }

BUG pattern_without_end(void) {
  FILE* out = fopen("/dev/null", "w");
  fprintf(out, full(24, 'x'));
  fclose(out);
}

typedef void (*Bug)(void);
static const Bug bugs[] = {
    sort_too_many,        sort_by_what_is_not_there, search_too_many,        tokens_of_no_text,
    print_no_text,        print_too_much,            line_into_freed,        scan_into_small,
    scan_number_into_small, read_block_into_small,   read_line_into_small,   number_without_end,
    real_number_without_end, address_without_end,    time_into_small,        variable_without_end,
    pattern_without_end,
};

int main(int argc, char** argv) {
  const int number = argc > 1 ? atoi(argv[1]) : -1;
  if (number >= 0 && number < (int)(sizeof bugs / sizeof *bugs)) bugs[number]();
  puts("end");
  return 0;
}
