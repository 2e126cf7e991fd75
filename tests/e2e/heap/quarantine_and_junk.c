// quarantine=0 and junk=0 do what they say: a freed block may be handed out again at once, and a fresh one is not filled.
//
// OPTIONS: quarantine=0:junk=0
// STDOUT: reused, with what was in it
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void) {
  int reused = 0;
  int kept = 0;
  char* volatile before = malloc(100);
  for (int i = 0; i < 100; ++i) {
    memset(before, 'x', 100);
    void* const old = before;
    free(before);
    before = malloc(100);
    if (before == old) {
      ++reused;
      kept += before[50] == 'x';
    }
  }
  if (reused > 0 && kept == reused) puts("reused, with what was in it");
  else printf("reused %d, kept %d\n", reused, kept);
  return 0;
}
