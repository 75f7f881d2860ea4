/* In place of libcuda.so.1: the driver of a version that a test chooses, which has nothing but that
 * version. */
#include <stdlib.h>

int cuDriverGetVersion(int* version);

int cuDriverGetVersion(int* version) {
  const char* chosen = getenv("SYMM_TEST_DRIVER_VERSION");
  *version = chosen != NULL ? atoi(chosen) : 0;
  return 0;
}
