// What both languages of the corpus contain: every access size, atomics, bit-fields, packed and large structs, arrays
// and allocas on the stack, scopes, globals of every linkage, and calls that do not return.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

extern void escape(void* p);
extern void never_returns(void) __attribute__((noreturn));

struct packed {
  char tag;
  long value;
} __attribute__((packed));

struct large {
  long words[12];
};

struct odd {
  char bytes[10];
};

struct bits {
  unsigned a : 3, b : 13, c : 16;
};

#ifdef __cplusplus
}
#endif
