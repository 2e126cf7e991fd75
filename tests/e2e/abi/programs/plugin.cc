// Throws and catches inside a module that was loaded with RTLD_LOCAL.
#include <stdexcept>
#include <string>

struct Cleanup {
  int* count;
  ~Cleanup() { ++*count; }
};

static void thrower(int* count) {
  Cleanup cleanup{count};
  throw std::runtime_error(std::string(30, 'x'));
}

extern "C" int run() {
  int count = 40;
  try {
    thrower(&count);
  } catch (const std::exception& e) {
    return e.what()[0] == 'x' && count == 41 ? 42 : 0;
  }
  return 0;
}
