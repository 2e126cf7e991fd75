// What the C++ standard promises about operator new where memory runs out: bad_alloc, the new_handler, nothrow.
//
// STDOUT: bad_alloc
// STDOUT: bad_alloc for an array
// STDOUT: bad_alloc for an alignment
// STDOUT: bad_alloc for a size
// STDOUT: null
// STDOUT: null for an array
// STDOUT: handler called 3 times
// STDOUT: null after a handler that threw
// STDOUT: int from a handler
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <vector>

static volatile std::size_t huge = PTRDIFF_MAX;
static void* volatile sink;
static int calls;

template <class Exception, class Body>
static void throws(const char* line, Body body) {
  try {
    body();
    std::puts("nothing thrown");
  } catch (const Exception&) {
    std::puts(line);
  }
}

int main() {
  throws<std::bad_alloc>("bad_alloc", [] { sink = ::operator new(huge); });
  throws<std::bad_alloc>("bad_alloc for an array", [] { sink = ::operator new[](huge); });
  throws<std::bad_alloc>("bad_alloc for an alignment", [] { sink = ::operator new(huge, std::align_val_t{64}); });
  throws<std::bad_alloc>("bad_alloc for a size", [] {
    volatile std::size_t n = huge;
    sink = new std::vector<char>(n);
  });
  std::puts(::operator new(huge, std::nothrow) == nullptr ? "null" : "memory");
  std::puts(::operator new[](huge, std::nothrow) == nullptr ? "null for an array" : "memory");

  std::set_new_handler([] {
    if (++calls == 3) std::set_new_handler(nullptr);
  });
  try {
    sink = ::operator new(huge);
  } catch (const std::bad_alloc&) {
    std::printf("handler called %d times\n", calls);
  }
  std::set_new_handler([] { throw std::bad_alloc(); });
  std::puts(::operator new(huge, std::nothrow) == nullptr ? "null after a handler that threw" : "memory");
  std::set_new_handler([] { throw 42; });
  throws<int>("int from a handler", [] { sink = ::operator new(huge); });
}
