// The CUDA driver's entry points, found at run time: symm links no CUDA library.
#ifndef SYMM_CORE_CUDA_DRIVER_H_
#define SYMM_CORE_CUDA_DRIVER_H_

#include <cuda.h>

#include <string>

#include "core/error.h"

namespace symm::cuda {

// cuda.h renames functions to the versions that its declarations belong to (cuMemAlloc is
// cuMemAlloc_v2), here as in every use: a table entry, its type and its symbol always agree.
#define SYMM_CUDA_ENTRY_POINTS(X)           \
  X(cuCtxEnablePeerAccess)                  \
  X(cuCtxGetCurrent)                        \
  X(cuCtxGetDevice)                         \
  X(cuCtxGetId)                             \
  X(cuCtxPopCurrent)                        \
  X(cuCtxPushCurrent)                       \
  X(cuDeviceCanAccessPeer)                  \
  X(cuDeviceGet)                            \
  X(cuDeviceGetAttribute)                   \
  X(cuDeviceGetCount)                       \
  X(cuDeviceGetName)                        \
  X(cuDeviceGetUuid)                        \
  X(cuDevicePrimaryCtxRelease)              \
  X(cuDevicePrimaryCtxRetain)               \
  X(cuDriverGetVersion)                     \
  X(cuEventCreate)                          \
  X(cuEventDestroy)                         \
  X(cuEventQuery)                           \
  X(cuEventRecord)                          \
  X(cuFuncGetAttribute)                     \
  X(cuGetErrorName)                         \
  X(cuGetErrorString)                       \
  X(cuGraphRetainUserObject)                \
  X(cuInit)                                 \
  X(cuIpcCloseMemHandle)                    \
  X(cuIpcGetMemHandle)                      \
  X(cuIpcOpenMemHandle)                     \
  X(cuLaunchKernelEx)                       \
  X(cuMemAddressFree)                       \
  X(cuMemAddressReserve)                    \
  X(cuMemCreate)                            \
  X(cuMemExportToShareableHandle)           \
  X(cuMemFreeHost)                          \
  X(cuMemGetAddressRange)                   \
  X(cuMemGetAllocationGranularity)          \
  X(cuMemGetAllocationPropertiesFromHandle) \
  X(cuMemHostAlloc)                         \
  X(cuMemHostGetDevicePointer)              \
  X(cuMemImportFromShareableHandle)         \
  X(cuMemMap)                               \
  X(cuMemRelease)                           \
  X(cuMemRetainAllocationHandle)            \
  X(cuMemSetAccess)                         \
  X(cuMemUnmap)                             \
  X(cuMemcpyAsync)                          \
  X(cuMemcpyDtoHAsync)                      \
  X(cuMemcpyHtoDAsync)                      \
  X(cuMemsetD32Async)                       \
  X(cuMemsetD8Async)                        \
  X(cuModuleGetFunction)                    \
  X(cuModuleLoadData)                       \
  X(cuPointerGetAttribute)                  \
  X(cuPointerGetAttributes)                 \
  X(cuStreamCreate)                         \
  X(cuStreamDestroy)                        \
  X(cuStreamGetCaptureInfo)                 \
  X(cuStreamGetCtx)                         \
  X(cuStreamGetId)                          \
  X(cuStreamQuery)                          \
  X(cuStreamSynchronize)                    \
  X(cuStreamUpdateCaptureDependencies)      \
  X(cuStreamWaitEvent)                      \
  X(cuThreadExchangeStreamCaptureMode)      \
  X(cuUserObjectCreate)                     \
  X(cuUserObjectRelease)

struct Driver {
#define SYMM_CUDA_MEMBER(name) decltype(&::name) name = nullptr;
  SYMM_CUDA_ENTRY_POINTS(SYMM_CUDA_MEMBER)
#undef SYMM_CUDA_MEMBER
};

// The initialised driver. Throws UNSUPPORTED, with the remedy, where there is no libcuda.so.1,
// where it is too old, or where it sees no GPU. Tried again in every call until it succeeds.
const Driver& driver();

// Whether driver() has succeeded before.
bool is_driver_started();

// Tests put their own table in place of libcuda.so.1, before anything else uses it; null takes it
// back.
void use_driver(const Driver* fake);

// A capture forbids the call, or was broken.
bool is_capture_error(CUresult result);

// Throws unless `result` is CUDA_SUCCESS: OUT_OF_MEMORY or UNSUPPORTED where it says so,
// INVALID_ARGUMENT where a capture of the caller's forbids the call, else CUDA.
// `function` is what was called, and `about` what for ("128 bytes for the arena").
void check(CUresult result, const char* function, const std::string& about);
inline void check(CUresult result, const char* function) {
  if (result != CUDA_SUCCESS) check(result, function, "");
}
// "cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY (out of memory)".
std::string error_text(CUresult result, const char* function);

}  // namespace symm::cuda

#endif  // SYMM_CORE_CUDA_DRIVER_H_
