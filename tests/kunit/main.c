// Runs the cases: kunit [--list | CASE]. Prints one line per case as KUnit does, and ends with 1 if one failed.
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "kunit.h"

void __asan_set_error_report_callback(void (*callback)(const char*));

enum { kMaxSeen = 128, kWordBytes = 48 };

static char g_words[kMaxSeen][kWordBytes];
static int g_seen;
static int g_failures;

static void see_report(const char* text) {
  static const char title[] = "BUG: KASAN: ";
  const char* word = strstr(text, title);
  if (word == NULL || g_seen == kMaxSeen) return;
  word += sizeof title - 1;
  size_t length = strcspn(word, " \n");
  if (length >= kWordBytes) length = kWordBytes - 1;
  memcpy(g_words[g_seen], word, length);
  g_words[g_seen][length] = '\0';
  ++g_seen;
}

static void complain(const char* file, int line, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  printf("    # %s:%d: ", file, line);
  vprintf(format, arguments);
  printf("\n");
  va_end(arguments);
  ++g_failures;
}

int kunit_pending(void) {
  const int pending = g_seen;
  g_seen = 0;
  return pending;
}

void kunit_begin(const char* file, int line) {
  const int pending = g_seen;
  if (pending != 0) complain(file, line, "%d reports before the expectation, the first: %s", pending, g_words[0]);
  g_seen = 0;
}

static bool is_one_of(const char* word, const char* classes) {
  const size_t length = strlen(word);
  for (const char* p = classes; *p != '\0';) {
    const size_t size = strcspn(p, "|");
    if (size == length && strncmp(p, word, size) == 0) return true;
    p += size;
    if (*p == '|') ++p;
  }
  return false;
}

void kunit_end(const char* file, int line, const char* classes, int least, int most, const char* expression) {
  if (g_seen < least || g_seen > most) {
    complain(file, line, "wanted %d of %s, got %d%s%s: %s", least, classes, g_seen, g_seen ? ", the first " : "",
             g_seen ? g_words[0] : "", expression);
  }
  for (int i = 0; i < g_seen; ++i) {
    if (!is_one_of(g_words[i], classes)) {
      complain(file, line, "wanted %s, got %s: %s", classes, g_words[i], expression);
      break;
    }
  }
  g_seen = 0;
}

void kunit_fail(const char* file, int line, const char* what) { complain(file, line, "%s", what); }

static sigjmp_buf g_back;

static void come_back(int signal) {
  (void)signal;
  siglongjmp(g_back, 1);
}

__attribute__((noinline)) void kunit_touch_inaccessible(volatile char* p) {
  struct sigaction action, before;
  memset(&action, 0, sizeof action);
  action.sa_handler = come_back;
  sigaction(SIGSEGV, &action, &before);
  if (sigsetjmp(g_back, 1) == 0) {
    (void)*p;
    complain(__FILE__, __LINE__, "memory that should be gone is there");
  }
  sigaction(SIGSEGV, &before, NULL);
}

static struct kunit_case* const kGroups[] = {kmalloc_cases, krealloc_cases, memory_call_cases,
                                             global_cases,  stack_cases,    bitop_cases,
                                             atomic_cases,  vmalloc_cases,  mode_cases};

int main(int argc, char** argv) {
  const bool list = argc > 1 && strcmp(argv[1], "--list") == 0;
  int number = 0;
  int failed = 0;
  setvbuf(stdout, NULL, _IOLBF, 0);
  __asan_set_error_report_callback(see_report);
  for (size_t group = 0; group < sizeof kGroups / sizeof *kGroups; ++group) {
    for (struct kunit_case* c = kGroups[group]; c->name != NULL; ++c) {
      if (list) {
        printf("%s\n", c->name);
        continue;
      }
      if (argc > 1 && strcmp(argv[1], c->name) != 0) continue;
      g_failures = 0;
      g_seen = 0;
      c->run();
      if (g_seen != 0) complain(c->name, 0, "%d reports that nothing expected, the first: %s", g_seen, g_words[0]);
      printf("    %s %d %s\n", g_failures == 0 ? "ok" : "not ok", ++number, c->name);
      failed += g_failures != 0;
    }
  }
  if (!list) printf("# kasan: pass:%d fail:%d total:%d\n", number - failed, failed, number);
  return failed != 0 || (!list && number == 0);
}
