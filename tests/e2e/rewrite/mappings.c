// Address space that changes hands by `syscall` instructions, behind libc's back: mappings CASE.
//
// Each case poisons a mapping as a compiled program does, lets it go and maps its addresses again; what is touched then is
// the new owner's. Or it asks for Penumbra's own memory.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/rseq.h>
#include <sys/syscall.h>
#include <unistd.h>

// By name when the program runs: a program that imports it has checks of its own and is left alone.
static void (*poison)(const volatile void* p, size_t bytes);

enum { kBytes = 16 * 4096, kRight = PROT_READ | PROT_WRITE, kPrivate = MAP_PRIVATE | MAP_ANONYMOUS };

static volatile long unknown;  // 0, which the rewriter cannot know

// The kernel keeps its arguments.
static inline __attribute__((always_inline)) long instruction(long number, long a, long b, long c, long d, long e, long f) {
  long rdi = a, rsi = b, rdx = c, result;
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  __asm__ volatile("syscall"
                   : "=a"(result), "+D"(rdi), "+S"(rsi), "+d"(rdx), "+r"(r10), "+r"(r8), "+r"(r9)
                   : "0"(number)
                   : "rcx", "r11", "memory");
  if (rdi != a || rsi != b || rdx != c || r10 != d || r8 != e || r9 != f) puts("arguments changed");
  return result;
}

static char* map_raw(void* at, int flags) {
  return (char*)instruction(SYS_mmap, (long)at, kBytes, kRight, kPrivate | flags, -1, 0);
}

static char* map_raw_by_any_number(void* at, int flags) {
  return (char*)instruction(SYS_mmap + unknown, (long)at, kBytes, kRight, kPrivate | flags, -1, 0);
}

static long unmap_raw(void* at, size_t bytes) {
  return instruction(SYS_munmap, (long)at, bytes, 0, 0, 0, 0);
}

// A leaf, with something in its red zone.
static __attribute__((noinline)) long unmap_raw_in_leaf(void* at, size_t bytes) {
  volatile long kept = (long)bytes;
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "0"((long)SYS_munmap), "D"(at), "S"(bytes) : "rcx", "r11", "memory");
  return kept == (long)bytes ? result : 1;
}

static char* poisoned(void) {
  char* p = mmap(NULL, kBytes, kRight, kPrivate, -1, 0);
  poison(p + 100, 1000);
  poison(p + kBytes - 64, 64);
  return p;
}

static void use(char* p) {
  for (int i = 0; i < kBytes; ++i) ((volatile char*)p)[i] = (char)i;
}

// A thread without a stack to come back to, as libraries with threads of their own end theirs.
static void* leave_without_stack(void* unused) {
  pthread_attr_t attributes;
  void* stack;
  size_t bytes;
  pthread_getattr_np(pthread_self(), &attributes);
  pthread_attr_getstack(&attributes, &stack, &bytes);
  // What the kernel writes for libc when a thread is preempted lies in the stack as well, and it kills who unmaps it.
  if (__rseq_size != 0)
    syscall(SYS_rseq, (char*)__builtin_thread_pointer() + __rseq_offset, sizeof(struct rseq), RSEQ_FLAG_UNREGISTER, RSEQ_SIG);
  __asm__ volatile(
      "mov $11, %%eax\n\tsyscall\n\t"
      "xor %%edi, %%edi\n\tmov $60, %%eax\n\tsyscall"
      : : "D"(stack), "S"(bytes) : "rax", "rcx", "r11", "memory");
  return unused;
}

// A page of the stack that this thread got without asking, by libc and by an instruction.
static void* give_up_pages(void* unused) {
  pthread_attr_t attributes;
  char* stack;
  size_t bytes;
  pthread_getattr_np(pthread_self(), &attributes);
  pthread_attr_getstack(&attributes, (void**)&stack, &bytes);
  printf("%d %ld\n", munmap(stack + 8192, 4096), unmap_raw(stack + 16384, 4096));
  return unused;
}

int main(int argc, char** argv) {
  const char* which = argc > 1 ? argv[1] : "";
  poison = (void (*)(const volatile void*, size_t))dlsym(RTLD_DEFAULT, "__asan_poison_memory_region");
  if (strcmp(which, "unmapped") == 0) {
    char* p = poisoned();
    unmap_raw(p, kBytes);
    use(mmap(p, kBytes, kRight, kPrivate | MAP_FIXED, -1, 0));
  } else if (strcmp(which, "mapped_over") == 0) {
    use(map_raw(poisoned(), MAP_FIXED));
  } else if (strcmp(which, "mapped_over_by_any_number") == 0) {
    use(map_raw_by_any_number(poisoned(), MAP_FIXED));
  } else if (strcmp(which, "moved") == 0) {
    char* p = poisoned();
    char* to = mmap(NULL, kBytes, PROT_NONE, kPrivate, -1, 0);
    long result;
    result = instruction(SYS_mremap, (long)p, kBytes, kBytes, MREMAP_MAYMOVE | MREMAP_FIXED, (long)to, 0);
    use((char*)result);
    use(map_raw(p, MAP_FIXED));
  } else if (strcmp(which, "break") == 0) {
    long before, after;
    before = instruction(SYS_brk, 0, 0, 0, 0, 0, 0);
    after = instruction(SYS_brk, before + kBytes, 0, 0, 0, 0, 0);
    poison((char*)before, kBytes);
    after = instruction(SYS_brk, before, 0, 0, 0, 0, 0);
    after = instruction(SYS_brk, before + kBytes, 0, 0, 0, 0, 0);
    if (after != before + kBytes) puts("no break");
    use((char*)before);
  } else if (strcmp(which, "kept") == 0) {
    char* p = poisoned();
    long result;
    result = instruction(SYS_mprotect, (long)p, kBytes, PROT_READ, 0, 0, 0);
    result = instruction(SYS_mprotect, (long)p, kBytes, kRight, 0, 0, 0);
    if (result != 0) puts("not protected");
    use(p);
  } else if (strcmp(which, "ours") == 0) {
    char* block = aligned_alloc(4096, 8192);
    if (map_raw((void*)0x7fff8000, MAP_FIXED) == (char*)-EEXIST) puts("exists");
    if (map_raw_by_any_number(block, MAP_FIXED) == (char*)-EEXIST) puts("exists");
    if (unmap_raw(block, 4096) == -EINVAL) puts("invalid");
    if (unmap_raw_in_leaf(block, 4096) == -EINVAL) puts("invalid");
    memset(block, 1, 8192);
    free(block);
  } else if (strcmp(which, "part_of_stack") == 0) {
    pthread_t thread;
    pthread_create(&thread, NULL, give_up_pages, NULL);
    pthread_join(thread, NULL);
  } else if (strcmp(which, "stack") == 0) {
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, mmap(NULL, 1 << 20, kRight, kPrivate, -1, 0), 1 << 20);
    pthread_create(&thread, &attributes, leave_without_stack, NULL);
    usleep(100000);
  } else {
    errno = 7;
    char* p = map_raw(NULL, 0);
    use(p);
    if (map_raw((void*)1, MAP_FIXED) == (char*)-EINVAL && unmap_raw(p + 1, 1) == -EINVAL && unmap_raw(p, kBytes) == 0 &&
        errno == 7)
      puts("as the kernel says");
  }
  puts("end");
  return 0;
}
