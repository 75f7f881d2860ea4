// In place of libcuda.so.1: a whole and recent driver that sees no GPU.
#include <cstring>

#include "core/cuda/driver.h"

namespace {

CUresult answer(const char* function, void* first, void* second) {
  if (strcmp(function, "cuDriverGetVersion") == 0) {
    *static_cast<int*>(first) = CUDA_VERSION;
    return CUDA_SUCCESS;
  }
  if (strcmp(function, "cuGetErrorName") == 0) {
    *static_cast<const char**>(second) = "CUDA_ERROR_NO_DEVICE";
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NO_DEVICE;
}

}  // namespace

// cuda.h has macros for some names, so that only the symbol can be named: by an assembler name.
#define SYMM_TEST_TEXT_OF(name) #name
#define SYMM_TEST_TEXT(name) SYMM_TEST_TEXT_OF(name)
#define SYMM_TEST_DEFINE(name)                                   \
  extern "C" __attribute__((visibility("default")))              \
  CUresult blind_##name(void*, void*) asm(SYMM_TEST_TEXT(name)); \
  extern "C" CUresult blind_##name(void* first, void* second) {  \
    return answer(SYMM_TEST_TEXT(name), first, second);          \
  }
SYMM_CUDA_ENTRY_POINTS(SYMM_TEST_DEFINE)
