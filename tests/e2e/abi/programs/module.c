// The instrumented module that modules.c loads: a global with a redzone, and reads of it.
int module_array[10] = {7};

int module_read(int i) { return module_array[i]; }
