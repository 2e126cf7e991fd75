// A reference count used in every wrong way, one word each, and in the right way.
#include <limits.h>
#include <penumbra/refcount.h>
#include <string.h>

static int right(void) {
  penumbra_refcount_t count = PENUMBRA_REFCOUNT_INIT(1);
  penumbra_refcount_inc(&count);
  if (!penumbra_refcount_inc_not_zero(&count) || penumbra_refcount_read(&count) != 3) return 1;
  penumbra_refcount_dec(&count);
  penumbra_refcount_add(2, &count);
  if (penumbra_refcount_sub_and_test(3, &count) || !penumbra_refcount_dec_and_test(&count)) return 1;
  return penumbra_refcount_inc_not_zero(&count) || penumbra_refcount_add_not_zero(2, &count);
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  penumbra_refcount_t count;
  if (strcmp(argv[1], "right") == 0) return right();
  if (strcmp(argv[1], "zero") == 0) {
    penumbra_refcount_set(&count, 0);
    penumbra_refcount_inc(&count);
  } else if (strcmp(argv[1], "underflow") == 0) {
    penumbra_refcount_set(&count, 0);
    if (penumbra_refcount_dec_and_test(&count)) return 1;
  } else if (strcmp(argv[1], "saturated") == 0) {
    penumbra_refcount_set(&count, INT_MAX);
    penumbra_refcount_inc(&count);
  } else if (strcmp(argv[1], "leak") == 0) {
    penumbra_refcount_set(&count, 1);
    penumbra_refcount_dec(&count);
  }
  return penumbra_refcount_read(&count) < 0 ? 0 : 1;
}
