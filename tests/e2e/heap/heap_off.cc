// heap=0: every name hands on to whoever would have served the program, the C++ operators to the C++ library, names that
// only other systems have to the C library's. Memory from before that was decided is known as well.
//
// OPTIONS: heap=0
// STDOUT: glibc: 40 of 33
// STDOUT: bad_alloc
// STDOUT: null
// STDOUT: done
#include <dlfcn.h>
#include <malloc.h>

#include <cassert>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

static volatile std::size_t huge = PTRDIFF_MAX;

template <class Function>
static Function look_up(const char* name) {
  const auto function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  assert(function != nullptr);
  return function;
}

int main() {
  void* volatile p = std::malloc(33);
  std::printf("glibc: %zu of 33\n", malloc_usable_size(p));
  p = std::realloc(p, 1000);
  std::free(p);
  std::free(std::calloc(3, 5));
  std::free(memalign(64, 10));
  std::free(aligned_alloc(64, 64));
  std::free(valloc(10));
  std::free(pvalloc(10));
  std::free(reallocarray(nullptr, 3, 5));
  void* q = nullptr;
  assert(posix_memalign(&q, 256, 10) == 0 && reinterpret_cast<std::uintptr_t>(q) % 256 == 0);
  look_up<void (*)(void*)>("cfree")(q);
  look_up<void (*)(void*)>("vfree")(std::malloc(10));
  q = look_up<void* (*)(void*, std::size_t)>("reallocf")(nullptr, 100);
  assert(look_up<std::size_t (*)(const void*)>("malloc_size")(q) == malloc_usable_size(q));
  std::free(q);

  ::operator delete(p = ::operator new(10));
  ::operator delete[](p = ::operator new[](10), std::size_t{10});
  ::operator delete(p = ::operator new(10, std::align_val_t{128}), std::align_val_t{128});
  ::operator delete(p = ::operator new(10, std::nothrow), std::nothrow);
  try {
    p = ::operator new(huge);
  } catch (const std::bad_alloc&) {
    std::puts("bad_alloc");
  }
  std::puts(::operator new(huge, std::nothrow) == nullptr ? "null" : "memory");
  assert(mallinfo2().arena > 0 && mallopt(M_MXFAST, 64) == 1);
  std::puts("done");
}
