// Sized and aligned deletes that do not say what new was asked for.
//
// EXPECT: BUG: KASAN:
// EXPECT: BUG: KASAN:
// EXPECT: BUG: KASAN:
// STDOUT: still here
// EXIT: 99
#include <cstdio>
#include <new>

int main() {
  void* volatile right = ::operator new(32);
  ::operator delete(right, std::size_t{32});
  void* volatile right_too = ::operator new(32, std::align_val_t{64});
  ::operator delete(right_too, std::size_t{32}, std::align_val_t{64});

  void* volatile small = ::operator new(32);
  ::operator delete(small, std::size_t{24});
  void* volatile aligned = ::operator new(32, std::align_val_t{64});
  ::operator delete(aligned);
  void* volatile plain = ::operator new(32);
  ::operator delete(plain, std::align_val_t{64});
  std::puts("still here");
}
