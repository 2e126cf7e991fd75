/* Accesses of every size and shape, each a function of its own so that a report names it; main() gives each a bad buffer of
   one kind: SHAPE over|under|freed|moved|far. Written in assembly where a compiler would choose. */
#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Aligned: a function of less than five bytes, with another one behind it, that is called through a pointer, has no room for
   a jump and runs unchecked. */
#define APART __attribute__((noinline, noclone, aligned(16)))
#define ASM(name, text, ...) \
  APART void name(char *p) { __asm__ volatile(text : : "r"(p) : "memory", "cc", "rax", "rcx", "rdx", ##__VA_ARGS__); }
#define AVX(name, text, ...) __attribute__((target("avx2"))) ASM(name, text, ##__VA_ARGS__)
#define AVX512(name, text, ...) __attribute__((target("avx512f,avx512bw,avx512vl"))) ASM(name, text, ##__VA_ARGS__)

ASM(read_1, "movzbl (%0), %%eax")
ASM(read_2, "movzwl (%0), %%eax")
ASM(read_4, "movl (%0), %%eax")
ASM(read_8, "movq (%0), %%rax")
ASM(read_10, "fldt (%0); fstp %%st(0)")
ASM(read_16, "movups (%0), %%xmm0", "xmm0")
AVX(read_32, "vmovdqu (%0), %%ymm0; vzeroupper", "xmm0")
AVX512(read_64, "vmovdqu64 (%0), %%zmm0; vzeroupper", "xmm0")
ASM(write_1, "movb $1, (%0)")
ASM(write_2, "movw $1, (%0)")
ASM(write_4, "movl $1, (%0)")
ASM(write_8, "movq $1, (%0)")
ASM(write_10, "fldz; fstpt (%0)")
ASM(write_16, "movups %%xmm0, (%0)")
AVX(write_32, "vmovdqu %%ymm0, (%0); vzeroupper")
AVX512(write_64, "vmovdqu64 %%zmm0, (%0); vzeroupper")
ASM(read_high, "movb (%0), %%ah")
ASM(float_4, "movss (%0), %%xmm0", "xmm0")
ASM(float_8, "addsd (%0), %%xmm0", "xmm0")
ASM(integer_load_x87, "fildl (%0); fstp %%st(0)")
ASM(control_word, "fnstcw (%0)")
ASM(environment, "fnstenv (%0); fldenv (%0)")
ASM(vector_control, "stmxcsr (%0)")
ASM(conditional_move, "cmp %%rax, %%rax; cmovne (%0), %%rax")
ASM(set_on_condition, "sete (%0)")
ASM(add_in_place, "addl $1, (%0)")
ASM(locked_add, "lock addl $1, (%0)")
ASM(exchange, "mov $1, %%eax; xchg %%eax, (%0)")
ASM(exchange_add, "mov $1, %%eax; lock xadd %%eax, (%0)")
ASM(compare_exchange, "xor %%eax, %%eax; mov $1, %%ecx; lock cmpxchg %%ecx, (%0)")
ASM(compare_exchange_8, "push %%rbx; xor %%ebx, %%ebx; lock cmpxchg8b (%0); pop %%rbx")
ASM(bit_test, "mov $0, %%eax; bt %%rax, (%0)")
ASM(bit_set, "mov $3, %%eax; lock bts %%eax, (%0)")
ASM(push_pop, "sub $256, %%rsp; push (%0); pop (%0); add $256, %%rsp")
ASM(repeat_store, "mov %0, %%rdi; mov $4, %%ecx; xor %%eax, %%eax; rep stosb", "rdi")
ASM(repeat_store_8, "mov %0, %%rdi; mov $1, %%ecx; xor %%eax, %%eax; rep stosq", "rdi")
ASM(repeat_load, "mov %0, %%rsi; mov $4, %%ecx; rep lodsb", "rsi")
ASM(repeat_scan, "mov %0, %%rdi; mov $4, %%ecx; mov $99, %%eax; repne scasb", "rdi")
ASM(table_lookup, "push %%rbx; mov %0, %%rbx; xor %%eax, %%eax; xlatb; pop %%rbx")
ASM(byte_mask, "pcmpeqd %%xmm1, %%xmm1; mov %0, %%rdi; maskmovdqu %%xmm1, %%xmm0", "rdi", "xmm1")
ASM(non_temporal, "movnti %%rax, (%0)")
AVX(masked_load, "vpcmpeqd %%ymm1, %%ymm1, %%ymm1; vpmaskmovd (%0), %%ymm1, %%ymm0; vzeroupper", "xmm0", "xmm1")
AVX(masked_store, "vpcmpeqd %%xmm1, %%xmm1, %%xmm1; vmaskmovps %%xmm0, %%xmm1, (%0)", "xmm1")
AVX(gather, "vpcmpeqd %%xmm2, %%xmm2, %%xmm2; vpxor %%xmm1, %%xmm1, %%xmm1; vpgatherdd %%xmm2, (%0, %%xmm1, 4), %%xmm0", "xmm0", "xmm1", "xmm2")
AVX512(masked_load_k, "mov $1, %%eax; kmovq %%rax, %%k1; vmovdqu8 (%0), %%zmm0 %{%%k1%}%{z%}; vzeroupper", "xmm0")
AVX512(masked_store_k, "mov $3, %%eax; kmovq %%rax, %%k1; vmovdqu32 %%zmm0, (%0) %{%%k1%}; vzeroupper")
AVX512(scatter, "kxnorw %%k1, %%k1, %%k1; vpxord %%zmm1, %%zmm1, %%zmm1; vpscatterdd %%zmm0, (%0, %%zmm1, 4) %{%%k1%}; vzeroupper", "xmm1")
AVX512(compress, "mov $15, %%eax; kmovq %%rax, %%k1; vpcompressd %%zmm0, (%0) %{%%k1%}; vzeroupper")
APART void save_legacy(char *p) { __asm__ volatile("fxsave (%0)" : : "r"(((uintptr_t)p + 15) & ~15ul) : "memory"); }
__attribute__((target("xsave"))) APART void save_state(char *p) {
  __asm__ volatile("mov $7, %%eax; xor %%edx, %%edx; xsave (%0)" : : "r"(((uintptr_t)p + 63) & ~63ul) : "memory", "rax", "rdx");
}

struct shape { const char *name; void (*run)(char *); int level; };
#define SHAPE(name) {#name, name, 0}
#define SHAPE1(name) {#name, name, 1}
#define SHAPE2(name) {#name, name, 2}
static const struct shape shapes[] = {
    SHAPE(read_1), SHAPE(read_2), SHAPE(read_4), SHAPE(read_8), SHAPE(read_10), SHAPE(read_16), SHAPE1(read_32), SHAPE2(read_64),
    SHAPE(write_1), SHAPE(write_2), SHAPE(write_4), SHAPE(write_8), SHAPE(write_10), SHAPE(write_16), SHAPE1(write_32), SHAPE2(write_64),
    SHAPE(read_high), SHAPE(float_4), SHAPE(float_8), SHAPE(integer_load_x87), SHAPE(control_word), SHAPE(environment), SHAPE(vector_control),
    SHAPE(conditional_move), SHAPE(set_on_condition), SHAPE(add_in_place), SHAPE(locked_add), SHAPE(exchange), SHAPE(exchange_add),
    SHAPE(compare_exchange), SHAPE(compare_exchange_8), SHAPE(bit_test), SHAPE(bit_set), SHAPE(push_pop), SHAPE(repeat_store),
    SHAPE(repeat_store_8), SHAPE(repeat_load), SHAPE(repeat_scan), SHAPE(table_lookup), SHAPE(byte_mask), SHAPE(non_temporal),
    SHAPE1(masked_load), SHAPE1(masked_store), SHAPE1(gather), SHAPE2(masked_load_k), SHAPE2(masked_store_k), SHAPE2(scatter),
    SHAPE2(compress), SHAPE(save_legacy), SHAPE(save_state),
};

void *volatile hidden;

static char *bad_buffer(const char *kind) {
  char *p = hidden = malloc(40);
  if (strcmp(kind, "over") == 0) return p + 40;
  if (strcmp(kind, "under") == 0) return p - 8;
  if (strcmp(kind, "freed") == 0) { free(p); return p; }
  if (strcmp(kind, "moved") == 0) { char *old = p; hidden = realloc(p, 100000); return old; }
  if (strcmp(kind, "far") == 0) { char *big = hidden = malloc(300); return big + 1200; }
  hidden = malloc(8192);
  return (char *)hidden + 64;
}

int main(int argc, char **argv) {
  int level = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") ? 2 : __builtin_cpu_supports("avx2") ? 1 : 0;
  if (argc == 1) {
    for (unsigned n = 0; n < sizeof shapes / sizeof *shapes; n++) if (shapes[n].level <= level) puts(shapes[n].name);
    return 0;
  }
  const char *kind = argc > 2 ? argv[2] : "fine";
  for (unsigned n = 0; n < sizeof shapes / sizeof *shapes; n++)
    if (strcmp(argv[1], shapes[n].name) == 0 || (strcmp(argv[1], "all") == 0 && shapes[n].level <= level)) shapes[n].run(bad_buffer(kind));
  puts("end");
  return 0;
}
