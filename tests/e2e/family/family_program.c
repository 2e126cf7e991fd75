/* The rest of the vmalloc family through the C API: `clean` uses all of it rightly, every other word does one wrong
 * thing, which a report must name (family_test.py). */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <penumbra/penumbra.h>
#include <sanitizer/asan_interface.h>

#define PAGE 4096

static int failures;

#define EXPECT(condition)                                                    \
  do {                                                                       \
    if (!(condition)) {                                                      \
      fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition);        \
      ++failures;                                                            \
    }                                                                        \
  } while (0)

static int fine(void *begin, size_t size) { return __asan_region_is_poisoned(begin, size) == NULL; }

static void mappings(void) {
  penumbra_page *pages[3];
  for (int i = 0; i < 3; ++i) EXPECT((pages[i] = penumbra_alloc_page()) != NULL);
  penumbra_page *const order[] = {pages[2], pages[0], pages[1]};
  char *mapped = penumbra_vmap(order, 3);
  EXPECT(mapped != NULL && fine(mapped, 3 * PAGE) && !fine(mapped, 3 * PAGE + 1));
  strcpy(mapped + PAGE, "through the mapping");
  EXPECT(strcmp(penumbra_page_address(pages[0]), "through the mapping") == 0);
  EXPECT(penumbra_virt_to_page(penumbra_page_address(pages[1])) == pages[1]);
  EXPECT(penumbra_virt_to_page(mapped) == NULL);
  penumbra_vunmap(mapped);
  EXPECT(!fine(mapped, 1) && fine(penumbra_page_address(pages[0]), PAGE));
  char *ram = penumbra_vm_map_ram(order, 2);
  EXPECT(ram != NULL && fine(ram, 2 * PAGE) && !fine(ram, 2 * PAGE + 1));
  EXPECT(strcmp(ram + PAGE, "through the mapping") == 0);
  penumbra_vm_unmap_ram(ram, 2);
  EXPECT(!fine(ram, 1));
  for (int i = 0; i < 3; ++i) penumbra_free_page(pages[i]);
  EXPECT(penumbra_page_address(pages[0]) == NULL);
  penumbra_page *block = penumbra_alloc_pages(3);
  EXPECT(fine(penumbra_page_address(block), 8 * PAGE));
  penumbra_free_pages(block, 3);
  penumbra_free_pages(NULL, 0);
  penumbra_vunmap(NULL);
  penumbra_vm_unmap_ram(NULL, 0);
}

static void per_cpu(void) {
  int *counter = penumbra_alloc_percpu(3 * sizeof(int), sizeof(int));
  EXPECT(counter != NULL && penumbra_percpu_cpus() >= 1);
  for (unsigned cpu = 0; cpu < penumbra_percpu_cpus(); ++cpu) {
    int *own = penumbra_per_cpu_ptr(counter, cpu);
    EXPECT(fine(own, 12) && !fine(own, 13) && own[0] == 0);
    own[1] = (int)cpu;
  }
  for (unsigned cpu = 0; cpu < penumbra_percpu_cpus(); ++cpu) {
    EXPECT(((int *)penumbra_per_cpu_ptr(counter, cpu))[1] == (int)cpu);
  }
  *(int *)penumbra_this_cpu_ptr(counter) += 1;
  penumbra_free_percpu(counter);
  for (unsigned cpu = 0; cpu < penumbra_percpu_cpus(); ++cpu) {
    EXPECT(!fine(penumbra_per_cpu_ptr(counter, cpu), 1));
  }
  penumbra_free_percpu(NULL);
  errno = 0;
  EXPECT(penumbra_alloc_percpu(0, 8) == NULL && errno == EINVAL);
}

static void *queued_head;
static void (*queued_function)(void *);
static void one_callback(void *head, void (*function)(void *)) {
  queued_head = head;
  queued_function = function;
}
static void no_wait(void) {}

static void deferred(void) {
  char *area = penumbra_vmalloc(100);
  EXPECT(penumbra_kvfree_rcu(area) == ENOSYS && fine(area, 100));
  EXPECT(penumbra_set_rcu(one_callback, NULL) == EINVAL);
  EXPECT(penumbra_set_rcu(one_callback, no_wait) == 0);
  EXPECT(penumbra_kvfree_rcu(area) == 0 && fine(area, 100));
  queued_function(queued_head);
  EXPECT(!fine(area, 1));
  area = penumbra_vmalloc(100);
  EXPECT(penumbra_kvfree_rcu_head(area, area + 50) == 0 && queued_head == area + 50);
  queued_function(queued_head);
  EXPECT(!fine(area, 1));
  char *object = malloc(100);
  EXPECT(penumbra_kvfree_rcu_head(object, object + 8) == 0 && fine(object, 100));
  queued_function(queued_head);
  EXPECT(!fine(object, 1));
  object = malloc(100);
  EXPECT(penumbra_kvfree_rcu(object) == 0);
  queued_function(queued_head);
  EXPECT(!fine(object, 1));
  EXPECT(penumbra_kvfree_rcu(NULL) == 0);
  char *first = penumbra_vmalloc(100), *second = penumbra_vmalloc(100);
  EXPECT(penumbra_kvfree_rcu_head(first, second + 8) == EINVAL && fine(first, 100) && fine(second, 100));
  penumbra_vfree(first);
  penumbra_vfree(second);
}

static void *use_everything(void *unused) {
  for (int i = 0; i < 300; ++i) {
    penumbra_page *page = penumbra_alloc_page();
    char *mapped = penumbra_vm_map_ram(&page, 1);
    if (mapped != NULL) mapped[5] = 1;
    penumbra_vm_unmap_ram(mapped, 1);
    penumbra_free_page(page);
    penumbra_free_percpu(penumbra_alloc_percpu(100, 8));
  }
  return unused;
}

/* A child of a process whose other thread is in the middle of everything works, and so does its parent. */
static void forks(void) {
  pthread_t other;
  pthread_create(&other, NULL, use_everything, NULL);
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      use_everything(NULL);
      mappings();
      per_cpu();
      _exit(failures != 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  pthread_join(other, NULL);
}

static int clean(void) {
  mappings();
  per_cpu();
  deferred();
  forks();
  penumbra_purge();
  struct penumbra_stats stats;
  penumbra_get_stats(&stats, sizeof stats);
  EXPECT(stats.lazy_areas == 0);
  return failures != 0;
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "clean";
  if (strcmp(what, "clean") == 0) return clean();
  penumbra_page *page = penumbra_alloc_page();
  char *mapped = penumbra_vmap(&page, 1);
  char *ram = penumbra_vm_map_ram(&page, 1);
  char *counter = penumbra_alloc_percpu(100, 8);
  char *area = penumbra_vmalloc(100);
  volatile size_t size = 101;
  penumbra_set_rcu(one_callback, no_wait);
  if (strcmp(what, "vunmap-twice") == 0) {
    penumbra_vunmap(mapped);
    penumbra_vunmap(mapped);
  } else if (strcmp(what, "vunmap-of-area") == 0) {
    penumbra_vunmap(area);
  } else if (strcmp(what, "vfree-of-mapping") == 0) {
    penumbra_vfree(mapped);
  } else if (strcmp(what, "unmap-ram-twice") == 0) {
    penumbra_vm_unmap_ram(ram, 1);
    penumbra_vm_unmap_ram(ram, 1);
  } else if (strcmp(what, "page-twice") == 0) {
    penumbra_free_page(page);
    penumbra_free_page(page);
  } else if (strcmp(what, "page-order") == 0) {
    penumbra_free_pages(page, 1);
  } else if (strcmp(what, "percpu-twice") == 0) {
    penumbra_free_percpu(counter);
    penumbra_free_percpu(counter);
  } else if (strcmp(what, "percpu-over") == 0) {
    memset(penumbra_per_cpu_ptr(counter, penumbra_percpu_cpus() - 1), 1, size);
  } else if (strcmp(what, "percpu-late") == 0) {
    penumbra_free_percpu(counter);
    memset(penumbra_per_cpu_ptr(counter, penumbra_percpu_cpus() - 1), 1, size - 1);
  } else if (strcmp(what, "mapping-late") == 0) {
    penumbra_vunmap(mapped);
    memset(mapped, 1, size);
  } else if (strcmp(what, "ram-late") == 0) {
    penumbra_vm_unmap_ram(ram, 1);
    memset(ram, 1, size);
  } else if (strcmp(what, "mapping-over") == 0) {
    /* The null device does not look at what it is given: the report is not followed by the fault itself. */
    const int nowhere = open("/dev/null", O_WRONLY);
    if (write(nowhere, mapped + PAGE - 100, size) < 0) return 3;
  } else if (strcmp(what, "page-late") == 0) {
    char *memory = penumbra_page_address(page);
    penumbra_free_page(page);
    memset(memory, 1, size);
  } else if (strcmp(what, "kvfree-freed") == 0) {
    penumbra_vfree(area);
    penumbra_kvfree_rcu(area);
  } else if (strcmp(what, "kvfree-twice") == 0) {
    penumbra_kvfree_rcu(area);
    penumbra_vfree(area);
    queued_function(queued_head);
  } else {
    return 2;
  }
  return 0;
}
