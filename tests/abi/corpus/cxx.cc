// C++: exceptions, dynamic initialisation, virtual calls, new and delete, captures, temporaries. Few headers, because
// every row of flags compiles them again.
#include <stdexcept>
#include <string>
#include <vector>

#include "all.h"

struct Base {
  virtual ~Base() = default;
  virtual int f(int i) { return a[i]; }
  int a[5] = {};
};

struct Derived final : Base {
  int f(int i) override { return a[i] + b[i]; }
  int b[3] = {};
};

std::string dynamic = "a string that is too long for the small buffer";
static std::vector<int> table(3, 4);
Base* make(int n) { return n ? new Derived[static_cast<unsigned>(n)] : new Base; }
thread_local std::vector<int> per_thread(10);

int throws(int n) {
  int local[10];
  escape(local);
  if (n > 3) throw std::runtime_error("n");
  return local[n];
}

int catches(int n) {
  std::string guard(static_cast<unsigned>(n), 'x');
  char buffer[50];
  try {
    escape(buffer);
    return throws(n);
  } catch (const std::exception& e) {
    return e.what()[0] + buffer[n];
  } catch (...) {
    throw;
  }
}

int lambdas(std::vector<int>& v, int n) {
  int array[6] = {n};
  auto f = [&array, &v, n](int i) { return array[i] + v[1] + n; };
  const std::string& longer = std::string("temporary ") + dynamic;
  return f(n) + static_cast<int>(longer.size()) + table[1] + per_thread[1];
}

template <class T>
struct Inline {
  static inline std::vector<T> shared{T{}, T{}};
};

int uses_inline() { return Inline<int>::shared[1]; }
