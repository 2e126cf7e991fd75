// The public interface inside a real process: a manual poison is reported, the program hears of it, and its death
// callback runs when a report ends the process (halt_on_error=1).
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "support.h"

void __asan_poison_memory_region(const volatile void*, size_t);
void __asan_unpoison_memory_region(const volatile void*, size_t);
void __asan_describe_address(void*);
void __asan_set_error_report_callback(void (*)(const char*));
void __sanitizer_set_death_callback(void (*)(void));
void __sanitizer_print_stack_trace(void);
const char* __asan_get_report_description(void);
void __lsan_ignore_object(const void*);

char arena[256];
static int g_heard;

static void hear(const char* text) { g_heard += strstr(text, "BUG: KASAN: use-after-poison in") != 0; }

static void die(void) {
  static const char text[] = "death callback\n";
  if (write(1, text, sizeof text - 1) < 0) _exit(3);
}

__attribute__((noinline)) void prints_its_stack(void) {
  __sanitizer_print_stack_trace();
  plain_use(arena);
}

int main(void) {
  setvbuf(stdout, 0, _IONBF, 0);
  __asan_set_error_report_callback(hear);
  __sanitizer_set_death_callback(die);
  __lsan_ignore_object(arena);
  __asan_describe_address(arena + 300 - 40);
  prints_its_stack();
  __asan_poison_memory_region(arena + 64, 64);
  puts("ok");
  volatile char value = arena[(unsigned)getpid() == 0 ? 0 : 70];
  (void)value;
  EXPECT(g_heard == 1);
  EXPECT(strcmp(__asan_get_report_description(), "use-after-poison") == 0);
  __asan_unpoison_memory_region(arena + 64, 64);
  value = arena[(unsigned)getpid() == 0 ? 0 : 70];
  return 0;
}
