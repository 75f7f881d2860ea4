/* What symm_all_reduce of 8 bytes costs a communicator of one rank: prints nanoseconds a call, the
 * median of batches. */
#include <stdio.h>
#include <stdlib.h>
#include <symm.h>
#include <time.h>

enum { BATCHES = 101, CALLS = 20000 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void check(symm_status status) {
  if (status != SYMM_OK) {
    fprintf(stderr, "cost: %s\n", symm_last_error());
    exit(1);
  }
}

int main(void) {
  char address[SYMM_ADDRESS_SIZE];
  size_t needed;
  symm_comm* comm;
  check(symm_address_create("127.0.0.1", address, sizeof address, &needed));
  check(symm_comm_create(address, 0, 1, SYMM_CPU, NULL, &comm));
  static double input[1] = {1}, output[1], batches[BATCHES];
  for (int batch = 0; batch < BATCHES; ++batch) {
    const double start = now();
    for (int call = 0; call < CALLS; ++call) {
      check(symm_all_reduce(comm, input, output, 1, SYMM_FLOAT64, SYMM_SUM, NULL));
    }
    batches[batch] = (now() - start) / CALLS;
  }
  qsort(batches, BATCHES, sizeof batches[0], by_value);
  printf("%.1f\n", batches[BATCHES / 2]);
  symm_comm_free(comm);
  return 0;
}
