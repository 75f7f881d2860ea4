/* Before libsymm.so: the library says that it is another version. */
#include <stdlib.h>

#include "capi/symm.h"

int32_t symm_version(void) {
  const char* version = getenv("SYMM_TEST_VERSION");
  return version != NULL ? atoi(version) : 0;
}
