// Correct programs with every kind of frame: large ones, recursion with allocas, scopes in loops, computed gotos out of
// scopes. Nothing may be reported.
#include <alloca.h>
#include <string.h>

#include "support.h"

__attribute__((noinline)) static long recursion(int depth, int bytes) {
  char* block = alloca((unsigned)bytes);
  char vla[bytes + 1];
  memset(block, depth, (unsigned)bytes);
  memset(vla, depth, (unsigned)bytes + 1);
  plain_use(block);
  plain_use(vla);
  const long below = depth > 0 ? recursion(depth - 1, bytes % 97 + 1) : 0;
  return below + block[bytes - 1] + vla[bytes];
}

__attribute__((noinline)) static int large(int n) {
  char first[100000];
  int second[20000];
  char third[3];
  memset(first, 1, sizeof first);
  memset(second, 0, sizeof second);
  memset(third, 2, sizeof third);
  plain_use(first);
  plain_use(second);
  return n > 0 ? large(n - 1) + first[99999] : second[19999] + third[2];
}

__attribute__((noinline)) static int scopes(int n) {
  int total = 0;
  for (int i = 0; i < n; ++i) {
    int inner[50];
    for (int j = 0; j < 50; ++j) inner[j] = i;
    plain_use(inner);
    total += inner[49];
    if (i % 3 == 0) continue;
    {
      char text[33];
      memset(text, i, sizeof text);
      plain_use(text);
      total += text[32];
      if (total > 1000000) goto out;
    }
  }
out:
  return total;
}

__attribute__((noinline)) static int vla_loop(int n) {
  int total = 0;
  for (int i = 1; i < n; ++i) {
    int vla[i];
    for (int j = 0; j < i; ++j) vla[j] = j;
    plain_use(vla);
    if (i == n / 2) continue;
    total += vla[i - 1];
  }
  return total;
}

int main(void) {
  EXPECT(recursion(200, 50) != 0);
  EXPECT(large(6) == 8);
  EXPECT(scopes(500) != 0);
  EXPECT(vla_loop(300) != 0);
  plain_expect_clean_below("after every frame has returned", 1 << 20);
  puts("ok");
  return 0;
}
