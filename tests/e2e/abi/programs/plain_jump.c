// Compiled without checks and without _FORTIFY_SOURCE: longjmp under its plain name.
#undef _FORTIFY_SOURCE
#include <setjmp.h>

void plain_longjmp(jmp_buf buffer) { _longjmp(buffer, 1); }
