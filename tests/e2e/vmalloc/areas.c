// The vmalloc family from C, linked: sizes, contents, alignments, errors, statistics. Nothing is wrong here, so nothing
// may be reported.
//
// STDOUT: done
#include <errno.h>
#include <penumbra/penumbra.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      printf("%s:%d: %s\n", __FILE__, __LINE__, #condition);          \
      exit(1);                                                        \
    }                                                                 \
  } while (0)

static void sizes_and_contents(void) {
  for (size_t size = 1; size < 300000; size = size * 2 + 1) {
    char* area = penumbra_vmalloc(size);
    CHECK(area != NULL && (uintptr_t)area % 4096 == 0);
    memset(area, 0x5a, size);
    penumbra_vfree(area);
    area = penumbra_vzalloc(size);
    for (size_t i = 0; i < size; ++i) CHECK(area[i] == 0);
    penumbra_vfree(area);
  }
  penumbra_vfree(NULL);
  penumbra_vfree_atomic(NULL);
}

static void alignments(void) {
  for (unsigned shift = 0; shift <= 26; ++shift) {
    char* area = penumbra_vmalloc_aligned(5000, (size_t)1 << shift);
    CHECK(area != NULL && (uintptr_t)area % ((size_t)1 << shift) == 0);
    penumbra_vfree(area);
  }
  char* huge = penumbra_vmalloc_huge((size_t)5 << 20);
  CHECK(huge != NULL && (uintptr_t)huge % (2u << 20) == 0);
  memset(huge, 1, (size_t)5 << 20);
  penumbra_vfree(huge);
}

static void errors(void) {
  errno = 0;
  CHECK(penumbra_vmalloc(0) == NULL && errno == EINVAL);
  errno = 0;
  CHECK(penumbra_vmalloc_aligned(4096, 24) == NULL && errno == EINVAL);
  volatile size_t too_large = SIZE_MAX - 100;
  errno = 0;
  CHECK(penumbra_vmalloc(too_large) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK(penumbra_vmalloc_aligned(4096, (size_t)1 << 63) == NULL && errno == ENOMEM);
  errno = 77;
  penumbra_vfree(penumbra_vmalloc(10));
  CHECK(errno == 77);
}

static void resizing(void) {
  char* area = penumbra_vrealloc(NULL, 4096);
  area[0] = 'a';
  area[4095] = 'z';
  char* const larger = penumbra_vrealloc(area, 4 * 4096);
  CHECK(larger != NULL && larger[0] == 'a' && larger[4095] == 'z');
  memset(larger + 4096, 1, 3 * 4096);
  CHECK(penumbra_vrealloc(larger, 4096) == larger);
  CHECK(penumbra_vrealloc(larger, 2001) == larger && larger[0] == 'a');
  CHECK(penumbra_vrealloc(larger, 4 * 4096) == larger && larger[0] == 'a');
  memset(larger, 2, 4 * 4096);
  errno = 0;
  volatile size_t too_large = SIZE_MAX / 2;
  CHECK(penumbra_vrealloc(larger, too_large) == NULL && errno == ENOMEM && larger[100] == 2);
  CHECK(penumbra_vrealloc(larger, 0) == NULL);
  // Larger than a pool's largest: sparse, with one edge unit.
  char* big = penumbra_vmalloc(3000000);
  big[2999999] = 7;
  CHECK(penumbra_vrealloc(big, 2999999) == big);
  char* const moved = penumbra_vrealloc(big, 6000000);
  CHECK(moved != NULL && moved[2999998] == 0);
  moved[5999999] = 1;
  penumbra_vfree(moved);
}

static void statistics(void) {
  struct penumbra_stats stats;
  char* const area = penumbra_vmalloc(12345);
  penumbra_get_stats(&stats, sizeof stats);
  const uint64_t live = stats.live_areas;
  CHECK(live >= 1 && stats.live_bytes >= 12345 && stats.shadow_pages >= 1);
  penumbra_vfree(area);
  penumbra_get_stats(&stats, sizeof stats);
  CHECK(stats.live_areas == live - 1 && stats.lazy_areas >= 1);
  penumbra_purge();
  penumbra_get_stats(&stats, sizeof stats);
  CHECK(stats.lazy_areas == 0 && stats.purge_passes >= 1 && stats.shadow_pages_dying == 0);
  uint64_t first[2] = {~0ull, ~0ull};
  penumbra_get_stats((struct penumbra_stats*)first, sizeof first[0]);  // as an older program knows it
  CHECK(first[0] == stats.live_areas && first[1] == ~0ull);
  char text[4096];
  const size_t length = penumbra_stats_text(text, sizeof text);
  CHECK(length == strlen(text) && strstr(text, "shadow pages:") != NULL);
  char small[20];
  CHECK(penumbra_stats_text(small, sizeof small) == length && strlen(small) == 19);
}

int main(void) {
  sizes_and_contents();
  alignments();
  errors();
  resizing();
  statistics();
  puts("done");
  return 0;
}
