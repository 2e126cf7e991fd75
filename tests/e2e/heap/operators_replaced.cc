// The program replaces operator new and delete, counting on malloc. Every other form goes through its own, as with
// libstdc++ alone (process ruling 14), and nobody calls it a mismatch.
//
// STDOUT: 9 9
#include <cstdio>
#include <cstdlib>
#include <new>

static int news;
static int deletes;

void* operator new(std::size_t bytes) {
  ++news;
  if (void* const p = std::malloc(bytes)) return p;
  throw std::bad_alloc();
}

void operator delete(void* p) noexcept {
  ++deletes;
  std::free(p);
}

int main() {
  void* volatile p;
  for (int i = 0; i < 3; ++i) {
    ::operator delete(p = ::operator new(10));
    ::operator delete[](p = ::operator new[](10));
    ::operator delete(p = ::operator new(10, std::nothrow), std::nothrow);
  }
  // Aligned forms have a base of their own.
  ::operator delete(p = ::operator new(10, std::align_val_t{64}), std::align_val_t{64});
  std::printf("%d %d\n", news, deletes);
}
