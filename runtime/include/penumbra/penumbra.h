/* Penumbra's C API: the vmalloc family in user space, and what it cost.
 *
 * Link with libpenumbra (pkg-config --cflags --libs penumbra), or run under it. Every function may be called from
 * any thread; only those that say so may be called from a signal handler. A call that returns NULL sets errno and
 * changes nothing. Successful calls leave errno as it was.
 *
 * An area is a whole number of pages (4096 bytes) with an inaccessible guard page behind it. Only the bytes that were
 * asked for may be touched: checks report an access to the rest of the last page, to the guard, to a freed area.
 * Freed areas are poisoned at once and reused late.
 */
#ifndef PENUMBRA_PENUMBRA_H
#define PENUMBRA_PENUMBRA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Areas ---------------------------------------------------------------------------------------------------- */

/* An area of `size` bytes, page aligned, contents undefined. NULL with EINVAL for size 0, with ENOMEM when it cannot
 * be had. */
void* penumbra_vmalloc(size_t size) __attribute__((malloc, alloc_size(1)));

/* The same, all bytes 0. */
void* penumbra_vzalloc(size_t size) __attribute__((malloc, alloc_size(1)));

/* The same, contents undefined, aligned to `alignment`, a power of two (EINVAL otherwise). Alignments below the page
 * size mean the page size. */
void* penumbra_vmalloc_aligned(size_t size, size_t alignment) __attribute__((malloc, alloc_size(1)));

/* The same, aligned to 2 MiB and on huge pages where the kernel gives them, if at least 2 MiB large. */
void* penumbra_vmalloc_huge(size_t size) __attribute__((malloc, alloc_size(1)));

/* Changes the size of an area to `size` bytes. Contents up to the smaller size stay, bytes that are gained are
 * undefined. The area stays where it is if its pages hold the new size, else it moves: use the returned address.
 *
 *     area NULL     penumbra_vmalloc(size)
 *     size 0        penumbra_vfree(area), returns NULL
 *     on failure    NULL with ENOMEM, and the old area is untouched
 *
 * An address that is no area of penumbra_vmalloc's is reported, and NULL with EINVAL returned. */
void* penumbra_vrealloc(const void* area, size_t size) __attribute__((alloc_size(2)));

/* Frees an area by its first address. NULL is allowed. An address that is no area, lies inside one, or was freed
 * already is reported, and nothing is freed. */
void penumbra_vfree(const void* area);

/* The same from a signal handler: takes no lock, makes no system call, does not wait. The area can no longer be used
 * or freed when it returns; the next allocation or free in any thread does the rest, and reports what was wrong (at
 * most 64 such reports wait; more are counted as late_faults_lost). */
void penumbra_vfree_atomic(const void* area);

/* ---- Mappings, per-CPU areas, deferred frees ------------------------------------------------------------------ */

/* A page that can be mapped at more than one address; a handle, not its memory. Pages are shared with forked children,
 * as MAP_SHARED memory is. */
typedef struct penumbra_page penumbra_page;

/* 2^order adjacent pages, contents undefined, page aligned. The handle of each is had by penumbra_virt_to_page(). NULL with EINVAL for an order above 8, with ENOMEM
 * (or what the kernel said) when they cannot be had. */
penumbra_page* penumbra_alloc_pages(unsigned order);
static inline penumbra_page* penumbra_alloc_page(void) {
  return penumbra_alloc_pages(0);
}

/* Frees what penumbra_alloc_pages(order) gave; another handle or order, or a second time, is reported, and nothing is
 * freed. NULL is allowed. Mappings of the pages are the caller's to end. */
void penumbra_free_pages(penumbra_page* page, unsigned order);
static inline void penumbra_free_page(penumbra_page* page) {
  penumbra_free_pages(page, 0);
}

/* Where a page's memory is mapped as long as it is allocated; NULL for a handle that is not. */
void* penumbra_page_address(const penumbra_page* page);
/* The reverse, for an address inside a page's own mapping (not one of penumbra_vmap's); NULL for any other. */
penumbra_page* penumbra_virt_to_page(const void* address);

/* Maps pages[0..count) at adjacent addresses, in the order given, with a guard page behind. NULL with EINVAL for count 0
 * or a handle that is none, with ENOMEM when it cannot be had. */
void* penumbra_vmap(penumbra_page* const* pages, unsigned count);
/* Ends such a mapping by its first address; the pages stay. Anything else is reported. NULL is allowed. */
void penumbra_vunmap(const void* mapping);

/* The same for short-lived mappings: cheaper for up to 64 pages, without a guard page of their own (what lies behind is
 * inaccessible to checks). Ended by penumbra_vm_unmap_ram with the same count. */
void* penumbra_vm_map_ram(penumbra_page* const* pages, unsigned count);
void penumbra_vm_unmap_ram(const void* mapping, unsigned count);

/* An object of `size` bytes (1 to 32768) for each CPU that may ever run, all bytes 0, aligned to `alignment`, a power of
 * two up to the page size. Returns the object of CPU 0. NULL with EINVAL or ENOMEM. */
void* penumbra_alloc_percpu(size_t size, size_t alignment);
/* Frees an object by what penumbra_alloc_percpu returned. Anything else is reported. NULL is allowed. */
void penumbra_free_percpu(void* object);
/* How many CPUs there are, and the object of one of them, of the one that runs the caller: that may be another one by
 * the time it is used. Valid for addresses inside an object too. */
unsigned penumbra_percpu_cpus(void);
void* penumbra_per_cpu_ptr(void* object, unsigned cpu);
void* penumbra_this_cpu_ptr(void* object);

/* The program's RCU, for penumbra_kvfree_rcu: liburcu's through <penumbra/penumbra-urcu.h>, or any other. call_rcu calls
 * function(head) once all readers of now are gone, never before it returns; synchronize_rcu returns once they are gone.
 * Both NULL takes the provider back. 0, or EINVAL for one of two. */
int penumbra_set_rcu(void (*call_rcu)(void* head, void (*function)(void* head)), void (*synchronize_rcu)(void));

/* Frees an area of penumbra_vmalloc's, or a heap object (malloc and its relatives), after a grace period of that RCU. 0,
 * ENOSYS without a provider, EINVAL for what is no live object (reported). NULL is allowed.
 *
 * With a head: `head` lies inside the object, takes what the provider calls a head (liburcu: struct rcu_head), and the
 * call never waits. Without one it may wait for a grace period when memory is short: not inside a reader's section. */
int penumbra_kvfree_rcu(void* object);
int penumbra_kvfree_rcu_head(void* object, void* head);

/* ---- Statistics ----------------------------------------------------------------------------------------------- */

/* All counts since the start of the process, or as of now. Fields are only ever appended. */
struct penumbra_stats {
  uint64_t live_areas; /* allocated, not freed */
  uint64_t live_bytes; /* of those, as asked for */
  uint64_t lazy_areas; /* freed, waiting for the clean-up */
  uint64_t lazy_bytes;
  uint64_t retained_areas; /* cleaned up, keeping their memory for the next of their size */
  uint64_t retained_bytes;
  uint64_t shadow_pages;       /* pages of shadow in use, 4096 bytes each */
  uint64_t shadow_pages_dying; /* of those, no longer needed and about to be given back */
  uint64_t shadow_pinned;      /* of those, kept because freed memory cannot be made inaccessible */
  uint64_t flushes;            /* clean-up steps that gave memory or shadow back */
  uint64_t flushed_pages;      /* in all of them */
  uint64_t purge_passes;       /* clean-ups of everything that waited */
  uint64_t purge_chunks;       /* steps of them */
  uint64_t longest_chunk_ns;   /* CPU time of the longest step */
  uint64_t late_faults_lost;   /* bad penumbra_vfree_atomic calls that found no room to wait for their report */
};

/* Fills in at most `size` bytes, sizeof(struct penumbra_stats) as the caller knows it; what this library does not
 * know reads 0. */
void penumbra_get_stats(struct penumbra_stats* stats, size_t size);

/* The same as text, a line each, into `buffer` of `size` bytes, cut there and terminated. Returns the length of the
 * whole text. */
size_t penumbra_stats_text(char* buffer, size_t size);

/* Cleans up everything that was freed, now: no memory and no shadow of it stays. */
void penumbra_purge(void);

#ifdef __cplusplus
}
#endif

#endif /* PENUMBRA_PENUMBRA_H */
