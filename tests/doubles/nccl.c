/* In place of libnccl.so.2: an NCCL of the version that a test chooses, which does nothing. Without
 * SYMM_TEST_WHOLE it has its version and no more. */
#include <stdlib.h>

int ncclGetVersion(int* version);

/* Fails where no version is chosen: then it is no NCCL. */
int ncclGetVersion(int* version) {
  const char* chosen = getenv("SYMM_TEST_NCCL_VERSION");
  *version = chosen != NULL ? atoi(chosen) : 0;
  return chosen != NULL ? 0 : 3;
}

#ifdef SYMM_TEST_WHOLE
#define SYMM_TEST_DEFINE(name) \
  int name(void);              \
  int name(void) { return 3; }
SYMM_TEST_DEFINE(ncclAllReduce)
SYMM_TEST_DEFINE(ncclCommAbort)
SYMM_TEST_DEFINE(ncclCommDestroy)
SYMM_TEST_DEFINE(ncclCommGetAsyncError)
SYMM_TEST_DEFINE(ncclCommInitRankConfig)
SYMM_TEST_DEFINE(ncclCommWindowDeregister)
SYMM_TEST_DEFINE(ncclCommWindowRegister)
SYMM_TEST_DEFINE(ncclGetErrorString)
SYMM_TEST_DEFINE(ncclGetLastError)
SYMM_TEST_DEFINE(ncclGetUniqueId)
#endif
