// Exceptions that uninstrumented code throws, rethrows and lets pass leave no poison behind.
#include <exception>
#include <stdexcept>
#include <string>

#include "support.h"

FRAMES_THAT_CALL(int)

namespace {

struct Cleanup {
  explicit Cleanup(int* count) : count_(count) {}
  ~Cleanup() {
    char buffer[500];  // a frame on top of the dead ones, while they are being unwound
    for (char& c : buffer) c = 'x';
    plain_use(buffer);
    ++*count_;
  }
  int* count_;
};

__attribute__((noinline)) void guarded(int* count, int depth) {
  Cleanup cleanup(count);
  char local[64];
  plain_use(local);
  if (depth == 0) {
    outer_frame(plain_throw, 3);
  } else {
    guarded(count, depth - 1);
  }
  plain_use(local);
}

__attribute__((noinline)) void fill_stack(int depth) {
  volatile char block[4000];
  for (std::size_t i = 0; i < sizeof block; ++i) block[i] = static_cast<char>(i);
  if (depth > 0) fill_stack(depth - 1);
}

}  // namespace

int main() {
  for (int round = 0; round < 50; ++round) {
    int count = 0;
    char live[40];
    plain_use(live);
    try {
      try {
        guarded(&count, round % 7);
      } catch (const std::string&) {
        EXPECT(false);
      } catch (...) {
        throw;
      }
    } catch (int value) {
      EXPECT(value == 3);
    }
    EXPECT(count == round % 7 + 1);
    plain_expect_clean_below("after a throw", 30000);
    fill_stack(10);
    plain_use(live);
  }
  std::exception_ptr kept;
  try {
    throw std::runtime_error("kept");
  } catch (...) {
    kept = std::current_exception();
  }
  try {
    std::rethrow_exception(kept);
  } catch (const std::exception& e) {
    EXPECT(e.what()[0] == 'k');
  }
  plain_expect_clean_below("after rethrow_exception", 30000);
  puts("ok");
}
