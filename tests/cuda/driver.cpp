#include "tests/cuda/driver.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <cstring>
#include <stdexcept>
#include <string>

namespace symm::cuda::testing {
namespace {

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

const Driver* load() {
  // A kernel that spins while the driver wants to load another would wait for ever; and every rank
  // on a GPU needs a queue of its own.
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) return nullptr;
  static Driver d;
  const bool complete =
      find(library, "cuInit", d.init) && find(library, "cuGetErrorName", d.error_name) &&
      find(library, "cuDeviceGetCount", d.device_count) && find(library, "cuDeviceGet", d.device) &&
      find(library, "cuDeviceGetAttribute", d.attribute) &&
      find(library, "cuDeviceCanAccessPeer", d.can_access_peer) &&
      find(library, "cuDevicePrimaryCtxRetain", d.retain_context) &&
      find(library, "cuCtxSetCurrent", d.set_context) &&
      find(library, "cuCtxEnablePeerAccess", d.enable_peer_access) &&
      find(library, "cuCtxSynchronize", d.synchronize_context) &&
      find(library, "cuMemAlloc_v2", d.alloc) && find(library, "cuMemFree_v2", d.free) &&
      find(library, "cuMemHostAlloc", d.host_alloc) &&
      find(library, "cuMemFreeHost", d.host_free) &&
      find(library, "cuMemHostGetDevicePointer_v2", d.host_device_pointer) &&
      find(library, "cuMemsetD32_v2", d.fill32) && find(library, "cuMemsetD8_v2", d.fill8) &&
      find(library, "cuMemcpyHtoDAsync_v2", d.upload) &&
      find(library, "cuMemcpyDtoHAsync_v2", d.download) &&
      find(library, "cuMemcpyDtoDAsync_v2", d.copy) &&
      find(library, "cuStreamCreate", d.stream_create) &&
      find(library, "cuStreamDestroy_v2", d.stream_destroy) &&
      find(library, "cuStreamSynchronize", d.stream_synchronize) &&
      find(library, "cuStreamQuery", d.stream_query) &&
      find(library, "cuStreamWaitEvent", d.stream_wait) &&
      find(library, "cuStreamBeginCapture_v2", d.begin_capture) &&
      find(library, "cuStreamEndCapture", d.end_capture) &&
      find(library, "cuGraphInstantiateWithFlags", d.instantiate) &&
      find(library, "cuGraphLaunch", d.graph_launch) &&
      find(library, "cuGraphDestroy", d.graph_destroy) &&
      find(library, "cuGraphExecDestroy", d.exec_destroy) &&
      find(library, "cuEventCreate", d.event_create) &&
      find(library, "cuEventDestroy_v2", d.event_destroy) &&
      find(library, "cuEventRecord", d.event_record) &&
      find(library, "cuEventRecordWithFlags", d.event_record_in_graph) &&
      find(library, "cuEventElapsedTime", d.event_elapsed) &&
      find(library, "cuModuleLoadData", d.module_load) &&
      find(library, "cuModuleGetFunction", d.module_function) &&
      find(library, "cuLaunchKernelEx", d.launch);
  int count = 0;
  if (!complete || d.init(0) != CUDA_SUCCESS || d.device_count(&count) != CUDA_SUCCESS ||
      count == 0) {
    return nullptr;
  }
  return &d;
}

}  // namespace

const Driver* driver() {
  static const Driver* const loaded = load();
  return loaded;
}

bool launches_block() {
  const char* text = getenv("CUDA_LAUNCH_BLOCKING");
  return text != nullptr && *text != '\0' && std::strcmp(text, "0") != 0;
}

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  driver()->error_name(result, &name);
  throw std::runtime_error(std::string(what) + ": " + (name != nullptr ? name : "unknown error"));
}

}  // namespace symm::cuda::testing
