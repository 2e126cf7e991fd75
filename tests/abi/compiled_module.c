// An instrumented module without globals, so without a constructor that would register any.

int read_at(int* p, int i, void (*escape)(int*)) {
  int local[10];
  escape(local);
  return p[i] + local[i];
}
