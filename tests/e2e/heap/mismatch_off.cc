// mismatch=0: families are not told apart.
//
// OPTIONS: mismatch=0
// STDOUT: still here
#include <cstdio>
#include <cstdlib>
#include <new>

int main() {
  void* volatile a = ::operator new(10);
  std::free(a);
  void* volatile b = ::operator new(32);
  ::operator delete(b, std::size_t{24});
  std::puts("still here");
}
