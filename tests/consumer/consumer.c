/* A user's program: a world of one rank, an all-reduce, and a failure that is told. Prints the
 * version, for its test to compare with what pkg-config and CMake said. */
#include <stdio.h>
#include <string.h>
#include <symm.h>

static int fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, symm_last_error());
  return 1;
}

int main(void) {
  char address[SYMM_ADDRESS_SIZE];
  size_t needed;
  symm_comm* comm = NULL;
  float values[3] = {1.5f, -2.0f, 0.25f};
  float sums[3] = {0.0f, 0.0f, 0.0f};

  if (symm_address_create("127.0.0.1", address, sizeof address, &needed) != SYMM_OK) {
    return fail("symm_address_create");
  }
  if (symm_comm_create(address, 0, 1, SYMM_CPU, NULL, &comm) != SYMM_OK) {
    return fail("symm_comm_create");
  }
  if (symm_all_reduce(comm, values, sums, 3, SYMM_FLOAT32, SYMM_SUM, NULL) != SYMM_OK) {
    return fail("symm_all_reduce");
  }
  if (memcmp(values, sums, sizeof sums) != 0) {
    return fail("the sum over one rank is not its input");
  }
  if (symm_all_reduce(comm, NULL, sums, 3, SYMM_FLOAT32, SYMM_SUM, NULL) != SYMM_INVALID_ARGUMENT ||
      strstr(symm_last_error(), "input") == NULL) {
    return fail("a null input was not refused as such");
  }
  symm_comm_free(comm);
  printf("%d.%d.%d\n", symm_version() / 1000000, symm_version() / 1000 % 1000,
         symm_version() % 1000);
  return 0;
}
