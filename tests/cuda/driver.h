// The CUDA driver for tests of the kernels: its functions, found at run time, and calls that throw.
#ifndef SYMM_TESTS_CUDA_DRIVER_H_
#define SYMM_TESTS_CUDA_DRIVER_H_

#include <cuda.h>

namespace symm::cuda::testing {

struct Driver {
  decltype(&cuInit) init;
  decltype(&cuGetErrorName) error_name;
  decltype(&cuDeviceGetCount) device_count;
  decltype(&cuDeviceGet) device;
  decltype(&cuDeviceGetAttribute) attribute;
  decltype(&cuDeviceCanAccessPeer) can_access_peer;
  decltype(&cuDevicePrimaryCtxRetain) retain_context;
  decltype(&cuCtxSetCurrent) set_context;
  decltype(&cuCtxEnablePeerAccess) enable_peer_access;
  decltype(&cuCtxSynchronize) synchronize_context;
  decltype(&cuMemAlloc) alloc;
  decltype(&cuMemFree) free;
  decltype(&cuMemHostAlloc) host_alloc;
  decltype(&cuMemFreeHost) host_free;
  decltype(&cuMemHostGetDevicePointer) host_device_pointer;
  decltype(&cuMemsetD32) fill32;
  decltype(&cuMemsetD8) fill8;
  decltype(&cuMemcpyHtoDAsync) upload;
  decltype(&cuMemcpyDtoHAsync) download;
  decltype(&cuMemcpyDtoDAsync) copy;
  decltype(&cuStreamCreate) stream_create;
  decltype(&cuStreamDestroy) stream_destroy;
  decltype(&cuStreamSynchronize) stream_synchronize;
  decltype(&cuStreamQuery) stream_query;
  decltype(&cuStreamWaitEvent) stream_wait;
  decltype(&cuStreamBeginCapture) begin_capture;
  decltype(&cuStreamEndCapture) end_capture;
  decltype(&cuGraphInstantiateWithFlags) instantiate;
  decltype(&cuGraphLaunch) graph_launch;
  decltype(&cuGraphDestroy) graph_destroy;
  decltype(&cuGraphExecDestroy) exec_destroy;
  decltype(&cuEventCreate) event_create;
  decltype(&cuEventDestroy) event_destroy;
  decltype(&cuEventRecord) event_record;
  decltype(&cuEventRecordWithFlags) event_record_in_graph;
  decltype(&cuEventElapsedTime) event_elapsed;
  decltype(&cuModuleLoadData) module_load;
  decltype(&cuModuleGetFunction) module_function;
  decltype(&cuLaunchKernelEx) launch;
};

// Null where there is no driver or no GPU. Initialised, with eager loading of modules.
const Driver* driver();

// CUDA_LAUNCH_BLOCKING: a launch holds its thread until the kernel has ended.
bool launches_block();

// Throws std::runtime_error with the error's name.
void check(CUresult result, const char* what);

}  // namespace symm::cuda::testing

#endif  // SYMM_TESTS_CUDA_DRIVER_H_
