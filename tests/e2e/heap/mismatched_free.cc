// Memory freed by another family than it came from: each way is reported once, and the block is freed.
//
// EXPECT: BUG: KASAN: .*mismatch.*
// EXPECT: BUG: KASAN: .*mismatch.*
// EXPECT: BUG: KASAN: .*mismatch.*
// EXPECT: BUG: KASAN: .*mismatch.*
// STDOUT: still here
// EXIT: 99
#include <cstdio>
#include <cstdlib>
#include <new>

int main() {
  void* volatile a = ::operator new(10);
  std::free(a);
  void* volatile b = std::malloc(10);
  ::operator delete(b);
  void* volatile c = ::operator new[](10);
  ::operator delete(c);
  void* volatile d = ::operator new(10);
  ::operator delete[](d);
  std::puts("still here");
}
