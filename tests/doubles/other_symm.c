/* Before libsymm.so: of another version (SYMM_TEST_VERSION), or with an all-reduce that does
 * nothing or ends the process (SYMM_TEST_ALL_REDUCE=nothing, =dies). */
#define _GNU_SOURCE /* RTLD_NEXT */

#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "capi/symm.h"

int32_t symm_version(void) {
  const char* version = getenv("SYMM_TEST_VERSION");
  int32_t (*real)(void);
  if (version != NULL) {
    return atoi(version);
  }
  *(void**)&real = dlsym(RTLD_NEXT, "symm_version");
  return real();
}

symm_status symm_all_reduce(symm_comm* comm, const void* input, void* output, size_t count,
                            symm_dtype dtype, symm_op op, void* stream) {
  const char* how = getenv("SYMM_TEST_ALL_REDUCE");
  symm_status (*real)(symm_comm*, const void*, void*, size_t, symm_dtype, symm_op, void*);
  if (how != NULL && strcmp(how, "dies") == 0) {
    raise(SIGKILL);
  }
  if (how != NULL) {
    return SYMM_OK;
  }
  *(void**)&real = dlsym(RTLD_NEXT, "symm_all_reduce");
  return real(comm, input, output, count, dtype, op, stream);
}
