#define _POSIX_C_SOURCE 200809L

#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "../engine.h"

static const struct {
  const char* name;
  size_t place; /* in the table */
} symbols[] = {
    /* The suffixes are the driver's: the plain names are of before CUDA 4. */
    {"cuInit", offsetof(struct gpu_driver, init)},
    {"cuGetErrorName", offsetof(struct gpu_driver, error_name)},
    {"cuGetErrorString", offsetof(struct gpu_driver, error_text)},
    {"cuDriverGetVersion", offsetof(struct gpu_driver, version)},
    {"cuDeviceGetCount", offsetof(struct gpu_driver, device_count)},
    {"cuDeviceGet", offsetof(struct gpu_driver, device_get)},
    {"cuDeviceGetName", offsetof(struct gpu_driver, device_name)},
    {"cuDeviceGetAttribute", offsetof(struct gpu_driver, device_attribute)},
    {"cuDevicePrimaryCtxRetain", offsetof(struct gpu_driver, context_retain)},
    {"cuDevicePrimaryCtxRelease_v2", offsetof(struct gpu_driver, context_release)},
    {"cuCtxSetCurrent", offsetof(struct gpu_driver, context_set)},
    {"cuMemAlloc_v2", offsetof(struct gpu_driver, memory_alloc)},
    {"cuMemFree_v2", offsetof(struct gpu_driver, memory_free)},
    {"cuMemcpyHtoD_v2", offsetof(struct gpu_driver, copy_to_device)},
    {"cuMemcpyDtoH_v2", offsetof(struct gpu_driver, copy_to_host)},
    {"cuMemsetD8Async", offsetof(struct gpu_driver, fill)},
    {"cuStreamCreate", offsetof(struct gpu_driver, stream_create)},
    {"cuStreamDestroy_v2", offsetof(struct gpu_driver, stream_destroy)},
    {"cuStreamSynchronize", offsetof(struct gpu_driver, stream_wait)},
    {"cuStreamBeginCapture_v2", offsetof(struct gpu_driver, capture_begin)},
    {"cuStreamEndCapture", offsetof(struct gpu_driver, capture_end)},
    {"cuGraphInstantiateWithFlags", offsetof(struct gpu_driver, graph_instantiate)},
    {"cuGraphUpload", offsetof(struct gpu_driver, graph_upload)},
    {"cuGraphLaunch", offsetof(struct gpu_driver, graph_launch)},
    {"cuGraphExecDestroy", offsetof(struct gpu_driver, graph_exec_destroy)},
    {"cuGraphDestroy", offsetof(struct gpu_driver, graph_destroy)},
    {"cuEventCreate", offsetof(struct gpu_driver, event_create)},
    {"cuEventDestroy_v2", offsetof(struct gpu_driver, event_destroy)},
    {"cuEventRecord", offsetof(struct gpu_driver, event_record)},
    {"cuEventElapsedTime", offsetof(struct gpu_driver, event_elapsed)},
    {"cuModuleLoadData", offsetof(struct gpu_driver, module_load)},
    {"cuModuleUnload", offsetof(struct gpu_driver, module_unload)},
    {"cuModuleGetFunction", offsetof(struct gpu_driver, module_function)},
    {"cuLaunchKernelEx", offsetof(struct gpu_driver, launch)},
};
enum { symbol_count = sizeof symbols / sizeof symbols[0] };

/* A function forgotten above would be a call of NULL. */
typedef char table_is_whole[sizeof(struct gpu_driver) == symbol_count * sizeof(void*) ? 1 : -1];

static struct gpu_driver table;
static char why_not[256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void) {
  void* object = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (object == NULL) {
    snprintf(why_not, sizeof why_not, "NVIDIA's driver is not here (%.150s)", dlerror());
    return;
  }
  for (int i = 0; i < symbol_count; ++i) {
    void* symbol = dlsym(object, symbols[i].name);
    if (symbol == NULL) {
      snprintf(why_not, sizeof why_not,
               "NVIDIA's driver is too old (no %s); CUDA 11.8 or newer is needed", symbols[i].name);
      return;
    }
    /* ISO C has no conversion from object to function pointers. */
    memcpy((char*)&table + symbols[i].place, &symbol, sizeof symbol);
  }
  const int error = table.init(0);
  if (error != 0) {
    snprintf(why_not, sizeof why_not, "cuInit failed: %.200s", gpu_error_text(error));
  }
}

const struct gpu_driver* gpu_driver_get(char* reason, size_t size) {
  pthread_once(&once, load);
  if (why_not[0] != '\0') {
    snprintf(reason, size, "%s", why_not);
    return NULL;
  }
  return &table;
}

const char* gpu_error_text(int error) {
  static __thread char text[256];
  const char *name = NULL, *meaning = NULL;
  if (table.error_name(error, &name) != 0 || table.error_text(error, &meaning) != 0) {
    snprintf(text, sizeof text, "CUDA error %d", error);
  } else {
    snprintf(text, sizeof text, "%s (%s)", name, meaning);
  }
  return text;
}

void gpu_check(int error, const char* what) {
  if (error != 0) {
    fail_rank("%s failed: %s", what, gpu_error_text(error));
  }
}
