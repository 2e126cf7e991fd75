// A program for another sanitizer: what its runtime reports must not change because ours was preloaded.
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

int global_array[10];

static int beyond(int n) {
  int stack_array[10] = {};
  return stack_array[n];
}

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  volatile int n = argc + 8;
  char* block = static_cast<char*>(std::malloc(10));
  try {
    if (n > 0) throw std::runtime_error("x");
  } catch (const std::exception&) {
  }
  std::jmp_buf buffer;
  if (setjmp(buffer) == 0) std::longjmp(buffer, 1);
  if (std::strcmp(what, "global") == 0) return global_array[n + 1];
  if (std::strcmp(what, "stack") == 0) return beyond(n);
  if (std::strcmp(what, "heap") == 0) return block[n];
  std::free(block);
  if (std::strcmp(what, "freed") == 0) return block[1];
  std::puts("ok");
  return 0;
}
