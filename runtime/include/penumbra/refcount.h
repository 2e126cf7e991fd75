/* A saturating reference count for C and C++ programs, with the Linux kernel's semantics and its reports.
 *
 * The count is between 0 and INT_MAX. What would bring it out of there is reported, with a stack, and saturates it: from
 * then on it neither rises nor falls, and what it counts is never freed instead of freed in use. Linked against
 * libpenumbra; every call may be made from any thread and from signal handlers.
 *
 *     refcount_t: addition on 0; use-after-free.       a reference taken to what nobody has any more
 *     refcount_t: underflow; use-after-free.           more given back than were taken
 *     refcount_t: saturated; leaking memory.           more than INT_MAX
 *     refcount_t: decrement hit 0; leaking memory.     the last one given back by penumbra_refcount_dec
 *
 * A reference to an object that is found in a table, rather than through another reference, must be taken with
 * penumbra_refcount_inc_not_zero: reading the count and taking one afterwards is a race. */
#ifndef PENUMBRA_REFCOUNT_H
#define PENUMBRA_REFCOUNT_H

#ifdef __cplusplus
extern "C" {
#endif

typedef struct penumbra_refcount {
  int refs;
} penumbra_refcount_t;

#define PENUMBRA_REFCOUNT_INIT(n) \
  { n }

void penumbra_refcount_set(penumbra_refcount_t* count, int n);
int penumbra_refcount_read(const penumbra_refcount_t* count);
void penumbra_refcount_inc(penumbra_refcount_t* count);
void penumbra_refcount_add(int n, penumbra_refcount_t* count);
/* 1 where a reference was taken, 0 where the count was 0. */
int penumbra_refcount_inc_not_zero(penumbra_refcount_t* count);
int penumbra_refcount_add_not_zero(int n, penumbra_refcount_t* count);
/* 1 for whoever gave the last one back: the object is his to free. */
int penumbra_refcount_dec_and_test(penumbra_refcount_t* count);
int penumbra_refcount_sub_and_test(int n, penumbra_refcount_t* count);
/* For a caller who knows that it is not the last. */
void penumbra_refcount_dec(penumbra_refcount_t* count);

#ifdef __cplusplus
}
#endif

#endif /* PENUMBRA_REFCOUNT_H */
