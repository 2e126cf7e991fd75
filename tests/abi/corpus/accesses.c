// Loads and stores of every size and kind.
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "all.h"

uint8_t load1(uint8_t* p) { return *p; }
uint16_t load2(uint16_t* p) { return *p; }
uint32_t load4(uint32_t* p) { return *p; }
uint64_t load8(uint64_t* p) { return *p; }
__extension__ typedef unsigned __int128 uint128;
uint128 load16(uint128* p) { return *p; }
void store1(uint8_t* p) { *p = 1; }
void store2(uint16_t* p) { *p = 1; }
void store4(uint32_t* p) { *p = 1; }
void store8(uint64_t* p) { *p = 1; }
void store16(uint128* p) { *p = 1; }
long double load_x87(long double* p) { return *p; }
long load_packed(struct packed* p) { return p->value; }
void store_packed(struct packed* p) { p->value = 3; }
void store_bits(struct bits* p) { p->b = 5; }
struct large copy_large(struct large* p) { return *p; }
void assign_large(struct large* to, struct large* from) { *to = *from; }
struct odd copy_odd(struct odd* p) { return *p; }
void add(int* p) { __atomic_fetch_add(p, 1, __ATOMIC_SEQ_CST); }
int swap_long(long* p, long a, long b) { return __sync_bool_compare_and_swap(p, a, b); }
int swap16(uint128* p, uint128 a, uint128 b) { return __sync_bool_compare_and_swap(p, a, b); }
typedef float vector __attribute__((vector_size(16)));
typedef float wide __attribute__((vector_size(32)));
vector load_vector(vector* p) { return *p; }
void store_wide(wide* p, wide v) { *p = v + v; }
void copy(void* to, const void* from, size_t n) { memcpy(to, from, n); }
void move(void* to, const void* from, size_t n) { memmove(to, from, n); }
void fill(void* to, size_t n) { memset(to, 0, n); }
void copy_fixed(struct large* to, struct large* from) { memcpy(to, from, sizeof *to); }
void clear_fixed(struct large* to) { memset(to, 0, sizeof *to); }
long difference(char* a, char* b) { return a - b; }
int less(char* a, char* b) { return a < b; }
