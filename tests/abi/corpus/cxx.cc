// C++: exceptions, dynamic initialisation, virtual calls, new and delete, captures, temporaries. No headers, because
// every row of flags compiles this again.
#include "all.h"

struct Error {
  explicit Error(int c) : code(c) {}
  Error(const Error& other) : code(other.code) {}
  virtual ~Error() { escape(this); }
  int code;
};

struct Base {
  virtual ~Base() = default;
  virtual int f(int i) { return a[i]; }
  int a[5] = {};
};

struct Derived final : Base {
  int f(int i) override { return a[i] + b[i]; }
  int b[3] = {};
};

struct Text {
  Text(const char* t, int n) : text(t), length(n) { escape(this); }
  ~Text() { escape(this); }
  const char* text;
  int length;
  char small[16];
};

Text dynamic("a text that a constructor makes", 31);
static Text table[3] = {{"a", 1}, {"b", 2}, {"c", 3}};
Base* make(int n) { return n ? new Derived[static_cast<unsigned>(n)] : new Base; }
void drop(Base* p) { delete p; }
thread_local Text per_thread("t", 1);

int throws(int n) {
  int local[10];
  escape(local);
  if (n > 3) throw Error(n);
  return local[n];
}

int catches(int n) {
  Text guard("x", n);
  char buffer[50];
  try {
    escape(buffer);
    return throws(n);
  } catch (const Error& e) {
    return e.code + buffer[n];
  } catch (...) {
    throw;
  }
}

int captures(int* v, int n) {
  int array[6] = {n};
  auto f = [&array, &v, n](int i) { return array[i] + v[1] + n; };
  const Text& longer = Text("temporary", n);
  return f(n) + longer.length + table[1].length + per_thread.length;
}

template <class T>
struct Inline {
  static inline Text shared{"inline", sizeof(T)};
};

int uses_inline() { return Inline<int>::shared.length; }

void ends(int n) {
  int local[4];
  escape(local);
  if (local[n]) never_returns();
}
