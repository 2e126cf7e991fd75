/* Seeded bugs, one a number: each is a load or store that no libc entry point and no compiler sees. */
#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define APART __attribute__((noinline, noclone))

struct node { int a, b, c, d; struct node *next; };

volatile int sink;
void *volatile hidden;

APART void store_byte(char *p, int n) { p[n] = 1; }
APART int load_byte(char *p, int n) { return p[n]; }
APART int sum_ints(int *p, int n) { int s = 0; for (int i = 0; i < n; i++) s += p[i]; return s; }
APART void store_four(long *p) { p[0] = 1; p[1] = 2; p[2] = 3; p[3] = 4; }
APART int load_before(short *p) { return p[-1]; }
APART int load_freed(char *p) { return *p; }
APART void store_vector(__m128i *p, __m128i v) { _mm_storeu_si128(p, v); }
struct __attribute__((packed)) odd { char head[13]; uint64_t value; };
APART void store_straddling(char *p, uint64_t v) { ((struct odd *)p)->value = v; }
APART void rep_store(char *p, long n) { __asm__ volatile("rep stosb" : "+D"(p), "+c"(n) : "a"(0) : "memory"); }
APART void rep_store_down(char *p, long n) { p += n - 1; __asm__ volatile("std; rep stosb; cld" : "+D"(p), "+c"(n) : "a"(0) : "memory"); }
APART void rep_move(char *to, char *from, long n) { __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory"); }
APART int follow(struct node *n) { return n->a + n->b + n->c + n->next->d; }
APART float sum_squares(float *p, int n) { float s = 0; for (int i = 0; i < n; i++) s += p[i] * p[i]; return s; }
APART void add_atomic(int *p) { __atomic_fetch_add(p, 1, __ATOMIC_SEQ_CST); }
APART void exchange(int *p) { __atomic_exchange_n(p, 1, __ATOMIC_SEQ_CST); }
APART int compare_exchange(long *p) { long e = 5; return __atomic_compare_exchange_n(p, &e, 6, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); }
APART long double load_extended(long double *p) { return *p + 1; }
APART void set_bit(char *p, long bit) { __asm__ volatile("bts %1, (%0)" : : "r"(p), "r"(bit) : "memory", "cc"); }
APART int scan(char *p, long n) { __asm__ volatile("repne scasb" : "+D"(p), "+c"(n) : "a"(77) : "memory", "cc"); return (int)n; }
APART void store_state(void *p) { __asm__ volatile("fxsave (%0)" : : "r"(p) : "memory"); }
APART void far_store(char *p, long n) { p[n] = 1; }
APART void push_memory(long *p) { __asm__ volatile("sub $256, %%rsp; push (%0); pop %%rax; add $256, %%rsp" : : "r"(p) : "rax", "memory"); }
APART void clear_struct(struct node *n) { *n = (struct node){0}; }

// For a test that makes another program of this one.
const char nobody_reads_this[] = "a byte of the constants";

int main(int argc, char **argv) {
  int which = argc > 1 ? atoi(argv[1]) : -1;
  char *p = malloc(29);
  int *q = malloc(40);
  memset(p, 1, 29);
  for (int i = 0; i < 10; i++) q[i] = i;
  switch (which) {
    case 0: store_byte(p, 29); break;
    case 1: sink = load_byte(p, -1); break;
    case 2: sink = sum_ints(q, 11); break;
    case 3: hidden = malloc(24); store_four(hidden); break;
    case 4: hidden = malloc(24); sink = load_before(hidden); break;
    case 5: hidden = malloc(30); free(hidden); sink = load_freed(hidden); break;
    case 6: hidden = malloc(15); store_vector(hidden, _mm_setzero_si128()); break;
    case 7: hidden = malloc(20); store_straddling(hidden, 1); break;
    case 8: rep_store(p, 30); break;
    case 9: rep_store_down(p - 1, 30); break;
    case 10: hidden = malloc(32); rep_move(hidden, p, 30); break;
    case 11: { struct node *n = malloc(24); memset(n, 0, 24); n->next = malloc(8); sink = follow(n); break; }
    case 12: sink = (int)sum_squares((float *)q, 11); break;
    case 13: hidden = malloc(300000); store_byte(hidden, 300000); break;
    case 14: hidden = malloc(20); hidden = realloc(hidden, 10); store_byte(hidden, 12); break;
    case 15: hidden = calloc(3, 5); store_byte(hidden, 15); break;
    case 16: add_atomic(q + 10); break;
    case 17: exchange(q + 10); break;
    case 18: hidden = malloc(8); sink = compare_exchange((long *)hidden + 1); break;
    case 19: hidden = malloc(9); sink = (int)load_extended(hidden); break;
    case 20: set_bit(p, 29 * 8 + 3); break;
    case 21: memset(p, 0, 29); sink = scan(p, 40); break;
    case 22: hidden = malloc(500); store_state((char *)(((uintptr_t)hidden + 15) & ~(uintptr_t)15)); break;
    case 23: far_store(p, 100); break;
    case 24: hidden = malloc(8); free(hidden); push_memory(hidden); break;
    case 25: hidden = malloc(sizeof(struct node)); free(hidden); clear_struct(hidden); break;
    case 26: hidden = malloc(64); hidden = realloc(hidden, 4000); { char *old = p; p = realloc(p, 100000); sink = load_byte(old, 0); } break;
    case 27: hidden = aligned_alloc(64, 64); store_byte(hidden, 64); break;
    case 28: hidden = malloc(1); store_byte(hidden, 1); break;
    case 29: hidden = malloc(0); store_byte(hidden, 0); break;
    default: break;
  }
  puts("end");
  return 0;
}
