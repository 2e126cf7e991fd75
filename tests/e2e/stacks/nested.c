/* A function pointer to a nested function is code on the stack: the whole program wants executable stacks. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static void* sort(void* argument) {
  int calls = 0;
  int compare(const void* a, const void* b) { return calls++, *(const int*)a - *(const int*)b; }
  int numbers[] = {3, 1, 2};
  qsort(numbers, 3, sizeof numbers[0], compare);
  printf("%d %d %d, %s\n", numbers[0], numbers[1], numbers[2], calls != 0 ? "compared" : "not compared");
  return argument;
}

int main(void) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, sort, NULL) != 0 || pthread_join(thread, NULL) != 0) return 1;
  return 0;
}
