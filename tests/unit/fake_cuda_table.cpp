// The fake driver's functions.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "core/error.h"
#include "tests/unit/fake_cuda_state.h"

namespace symm::cuda::fake {
namespace {

// Every entry point that can fail begins so.
#define FAKE_BEGIN(name)                                  \
  std::lock_guard lock(state->mutex);                     \
  ++state->calls;                                         \
  if (state->countdown >= 0 && state->countdown-- == 0) { \
    state->failed = #name;                                \
    return state->result;                                 \
  }

CUresult init(unsigned) { return CUDA_SUCCESS; }
CUresult version(int* v) {
  *v = CUDA_VERSION;
  return CUDA_SUCCESS;
}
CUresult error_name(CUresult r, const char** s) {
  *s = r == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_FAKE";
  return CUDA_SUCCESS;
}
CUresult error_string(CUresult, const char** s) {
  *s = "made up";
  return CUDA_SUCCESS;
}
CUresult device_count(int* n) {
  FAKE_BEGIN(cuDeviceGetCount);
  *n = state->gpus;
  return CUDA_SUCCESS;
}
CUresult device_get(CUdevice* d, int ordinal) {
  FAKE_BEGIN(cuDeviceGet);
  if (ordinal >= state->gpus) return CUDA_ERROR_INVALID_DEVICE;
  *d = ordinal;
  return CUDA_SUCCESS;
}
CUresult device_attribute(int* v, CUdevice_attribute a, CUdevice d) {
  FAKE_BEGIN(cuDeviceGetAttribute);
  *v = 1;
  if (a == CU_DEVICE_ATTRIBUTE_INTEGRATED) *v = static_cast<int>(state->integrated.count(d));
  if (a == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) *v = 132;
  if (a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) *v = state->capability / 10;
  if (a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR) *v = state->capability % 10;
  return CUDA_SUCCESS;
}
CUresult device_name(char* s, int n, CUdevice d) {
  FAKE_BEGIN(cuDeviceGetName);
  std::strncpy(s, text("Fake GPU ", d).c_str(), static_cast<size_t>(n));
  return CUDA_SUCCESS;
}
CUresult device_uuid(CUuuid* u, CUdevice d) {
  FAKE_BEGIN(cuDeviceGetUuid);
  std::memset(u->bytes, 'a' + d, sizeof u->bytes);
  return CUDA_SUCCESS;
}
CUresult can_access(int* can, CUdevice from, CUdevice to) {
  FAKE_BEGIN(cuDeviceCanAccessPeer);
  *can = state->peer_access && state->unreachable.count({from, to}) == 0;
  return CUDA_SUCCESS;
}
CUresult primary_retain(CUcontext* c, CUdevice d) {
  FAKE_BEGIN(cuDevicePrimaryCtxRetain);
  ++state->contexts[static_cast<size_t>(d)].retained;
  *c = context_of(d);
  return CUDA_SUCCESS;
}
CUresult primary_release(CUdevice d) {
  std::lock_guard lock(state->mutex);
  --state->contexts[static_cast<size_t>(d)].retained;
  return CUDA_SUCCESS;
}
CUresult get_current(CUcontext* c) {
  FAKE_BEGIN(cuCtxGetCurrent);
  *c = stack().empty() ? nullptr : stack().back();
  return CUDA_SUCCESS;
}
CUresult get_device(CUdevice* d) {
  FAKE_BEGIN(cuCtxGetDevice);
  *d = gpu_of(stack().back());
  return CUDA_SUCCESS;
}
CUresult get_id(CUcontext, unsigned long long* id) {
  FAKE_BEGIN(cuCtxGetId);
  *id = 1000000 + reinterpret_cast<uintptr_t>(stack().back());
  return CUDA_SUCCESS;
}
CUresult push(CUcontext c) {
  FAKE_BEGIN(cuCtxPushCurrent);
  stack().push_back(c);
  return CUDA_SUCCESS;
}
CUresult pop(CUcontext* c) {
  std::lock_guard lock(state->mutex);
  *c = stack().back();
  stack().pop_back();
  if (stack().empty()) state->stacks.erase(std::this_thread::get_id());
  return CUDA_SUCCESS;
}
CUresult enable_peer(CUcontext, unsigned) {
  FAKE_BEGIN(cuCtxEnablePeerAccess);
  return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}
CUresult exchange_mode(CUstreamCaptureMode* m) {
  static thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::swap(mode, *m);
  return CUDA_SUCCESS;
}
CUresult stream_create(CUstream* s, unsigned) {
  FAKE_BEGIN(cuStreamCreate);
  auto* stream = new Stream{gpu_of(stack().back()), state->next_id++, 0, false, nullptr, {}};
  state->streams.insert(stream);
  *s = reinterpret_cast<CUstream>(stream);
  return CUDA_SUCCESS;
}
CUresult stream_destroy(CUstream s) {
  std::lock_guard lock(state->mutex);
  auto* stream = reinterpret_cast<Stream*>(s);
  if (state->streams.erase(stream) == 0) std::abort();
  delete stream;
  return CUDA_SUCCESS;
}
CUresult stream_id(CUstream s, unsigned long long* id) {
  FAKE_BEGIN(cuStreamGetId);
  if (look_up(s)->capture != 0) {
    look_up(s)->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  *id = look_up(s)->id;
  return CUDA_SUCCESS;
}
CUresult stream_context(CUstream s, CUcontext* c) {
  FAKE_BEGIN(cuStreamGetCtx);
  if (look_up(s)->capture != 0) {
    look_up(s)->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  *c = context_of(look_up(s)->gpu);
  return CUDA_SUCCESS;
}
CUresult stream_query(CUstream s) {
  std::lock_guard lock(state->mutex);
  look_up(s);
  return CUDA_SUCCESS;
}
CUresult stream_synchronize(CUstream s) {
  FAKE_BEGIN(cuStreamSynchronize);
  look_up(s);
  return CUDA_SUCCESS;
}
CUresult capture_info(CUstream s, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                      const CUgraphNode** nodes, const CUgraphEdgeData** edges, size_t* count) {
  FAKE_BEGIN(cuStreamGetCaptureInfo);
  Stream* stream = look_up(s);
  *status = stream->capture == 0 ? CU_STREAM_CAPTURE_STATUS_NONE
            : stream->invalid    ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                 : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (id != nullptr) *id = stream->capture;
  if (graph != nullptr) *graph = stream->graph;
  if (nodes != nullptr) *nodes = stream->depends.data();
  if (edges != nullptr) *edges = nullptr;
  if (count != nullptr) *count = stream->depends.size();
  return CUDA_SUCCESS;
}
CUresult update_dependencies(CUstream s, CUgraphNode* nodes, const CUgraphEdgeData*, size_t n,
                             unsigned) {
  FAKE_BEGIN(cuStreamUpdateCaptureDependencies);
  Stream* stream = look_up(s);
  for (size_t i = 0; i < n; ++i) {
    stream->depends.push_back(nodes[i]);
    state->log.push_back(text("depend ", stream->id, ' ', reinterpret_cast<uintptr_t>(nodes[i])));
  }
  return CUDA_SUCCESS;
}
CUresult event_create(CUevent* e, unsigned) {
  FAKE_BEGIN(cuEventCreate);
  auto* event = new Event;
  state->events.insert(event);
  *e = reinterpret_cast<CUevent>(event);
  return CUDA_SUCCESS;
}
CUresult event_destroy(CUevent e) {
  std::lock_guard lock(state->mutex);
  auto* event = reinterpret_cast<Event*>(e);
  if (state->events.erase(event) == 0) std::abort();
  delete event;
  return CUDA_SUCCESS;
}
CUresult event_query(CUevent e) {
  std::lock_guard lock(state->mutex);
  const bool held = state->hold || reinterpret_cast<Event*>(e)->held;
  return held ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}
CUresult event_record(CUevent e, CUstream s) {
  FAKE_BEGIN(cuEventRecord);
  reinterpret_cast<Event*>(e)->recorded = true;
  reinterpret_cast<Event*>(e)->held = state->hold_after == 0;
  if (state->hold_after > 0) --state->hold_after;
  state->log.push_back(text("record ", look_up(s)->id));
  return CUDA_SUCCESS;
}
CUresult stream_wait(CUstream s, CUevent, unsigned) {
  FAKE_BEGIN(cuStreamWaitEvent);
  state->log.push_back(text("wait ", look_up(s)->id));
  return CUDA_SUCCESS;
}
CUresult launch(const CUlaunchConfig* config, CUfunction f, void** arguments, void**) {
  FAKE_BEGIN(cuLaunchKernelEx);
  Stream* stream = look_up(config->hStream);
  if (stream->gpu != gpu_of(stack().back())) return CUDA_ERROR_INVALID_HANDLE;
  state->launches.push_back(
      {config->hStream, f, config->numAttrs != 0, *static_cast<const Params*>(arguments[0])});
  state->log.push_back(text("launch ", stream->id));
  if (stream->capture != 0) stream->depends = {reinterpret_cast<CUgraphNode>(state->next_node++)};
  return CUDA_SUCCESS;
}
CUresult object_create(CUuserObject* o, void* data, CUhostFn destroy, unsigned, unsigned) {
  FAKE_BEGIN(cuUserObjectCreate);
  auto* object = new Object{destroy, data};
  state->objects.insert(object);
  *o = reinterpret_cast<CUuserObject>(object);
  return CUDA_SUCCESS;
}
CUresult object_release(CUuserObject o, unsigned) {
  auto* object = reinterpret_cast<Object*>(o);
  {
    std::lock_guard lock(state->mutex);
    state->objects.erase(object);
  }
  object->destroy(object->data);
  delete object;
  return CUDA_SUCCESS;
}
CUresult graph_retain(CUgraph g, CUuserObject o, unsigned, unsigned) {
  FAKE_BEGIN(cuGraphRetainUserObject);
  reinterpret_cast<Graph*>(g)->objects.push_back(reinterpret_cast<Object*>(o));
  return CUDA_SUCCESS;
}
CUresult granularity(size_t* g, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) {
  FAKE_BEGIN(cuMemGetAllocationGranularity);
  *g = kGranule;
  return CUDA_SUCCESS;
}
CUresult mem_create(CUmemGenericAllocationHandle* h, size_t size, const CUmemAllocationProp* p,
                    unsigned long long) {
  FAKE_BEGIN(cuMemCreate);
  const int fd = memfd_create("fake", MFD_CLOEXEC);
  if (ftruncate(fd, static_cast<off_t>(size)) != 0) std::abort();
  auto* memory = new Memory{fd, size, p->location.id, p->requestedHandleTypes != 0, 1};
  state->memories.insert(memory);
  *h = reinterpret_cast<CUmemGenericAllocationHandle>(memory);
  return CUDA_SUCCESS;
}
CUresult mem_release(CUmemGenericAllocationHandle h) {
  std::lock_guard lock(state->mutex);
  drop(reinterpret_cast<Memory*>(h));
  return CUDA_SUCCESS;
}
CUresult mem_export(void* out, CUmemGenericAllocationHandle h, CUmemAllocationHandleType,
                    unsigned long long) {
  FAKE_BEGIN(cuMemExportToShareableHandle);
  *static_cast<int*>(out) = dup(reinterpret_cast<Memory*>(h)->fd);
  return CUDA_SUCCESS;
}
CUresult mem_import(CUmemGenericAllocationHandle*, void*, CUmemAllocationHandleType) {
  std::abort();  // ranks are threads: nothing is imported
}
CUresult mem_retain(CUmemGenericAllocationHandle* h, void* address) {
  FAKE_BEGIN(cuMemRetainAllocationHandle);
  auto next = state->mapped.upper_bound(reinterpret_cast<uintptr_t>(address));
  if (next == state->mapped.begin()) return CUDA_ERROR_INVALID_VALUE;
  --next;
  if (reinterpret_cast<uintptr_t>(address) >= next->first + next->second.size) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  ++next->second.memory->references;
  *h = reinterpret_cast<CUmemGenericAllocationHandle>(next->second.memory);
  return CUDA_SUCCESS;
}
CUresult mem_properties(CUmemAllocationProp* p, CUmemGenericAllocationHandle h) {
  FAKE_BEGIN(cuMemGetAllocationPropertiesFromHandle);
  *p = {};
  if (reinterpret_cast<Memory*>(h)->exportable) {
    p->requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  }
  return CUDA_SUCCESS;
}
CUresult address_range(CUdeviceptr* base, size_t* size, CUdeviceptr address) {
  FAKE_BEGIN(cuMemGetAddressRange);
  auto next = state->mapped.upper_bound(address);
  if (next == state->mapped.begin()) return CUDA_ERROR_INVALID_VALUE;
  --next;
  if (address >= next->first + next->second.size) return CUDA_ERROR_INVALID_VALUE;
  *base = next->first;
  *size = next->second.size;
  return CUDA_SUCCESS;
}
CUresult reserve(CUdeviceptr* address, size_t size, size_t, CUdeviceptr, unsigned long long) {
  FAKE_BEGIN(cuMemAddressReserve);
  void* at = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  *address = reinterpret_cast<CUdeviceptr>(at);
  state->reserved[*address] = size;
  return CUDA_SUCCESS;
}
CUresult address_free(CUdeviceptr address, size_t size) {
  std::lock_guard lock(state->mutex);
  if (state->reserved.erase(address) == 0) std::abort();
  munmap(reinterpret_cast<void*>(address), size);
  return CUDA_SUCCESS;
}
CUresult mem_map(CUdeviceptr address, size_t size, size_t, CUmemGenericAllocationHandle h,
                 unsigned long long) {
  FAKE_BEGIN(cuMemMap);
  auto* memory = reinterpret_cast<Memory*>(h);
  mmap(reinterpret_cast<void*>(address), size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
       memory->fd, 0);
  ++memory->references;
  state->mapped[address] = {size, memory};
  state->ranges[address] = {size, memory->gpu, false, state->next_buffer++};
  return CUDA_SUCCESS;
}
CUresult mem_unmap(CUdeviceptr address, size_t size) {
  std::lock_guard lock(state->mutex);
  const auto found = state->mapped.find(address);
  if (found == state->mapped.end() || found->second.size != size) std::abort();
  mmap(reinterpret_cast<void*>(address), size, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  drop(found->second.memory);
  state->mapped.erase(found);
  state->ranges.erase(address);
  return CUDA_SUCCESS;
}
CUresult set_access(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) {
  FAKE_BEGIN(cuMemSetAccess);
  return CUDA_SUCCESS;
}
CUresult host_alloc(void** p, size_t size, unsigned) {
  FAKE_BEGIN(cuMemHostAlloc);
  *p = std::aligned_alloc(4096, (size + 4095) / 4096 * 4096);
  state->pinned.insert(*p);
  return CUDA_SUCCESS;
}
CUresult host_free(void* p) {
  std::lock_guard lock(state->mutex);
  if (state->pinned.erase(p) == 0) std::abort();
  std::free(p);
  return CUDA_SUCCESS;
}
CUresult host_pointer(CUdeviceptr* d, void* p, unsigned) {
  FAKE_BEGIN(cuMemHostGetDevicePointer);
  *d = reinterpret_cast<CUdeviceptr>(p);
  return CUDA_SUCCESS;
}
CUresult copy_in(CUdeviceptr to, const void* from, size_t size, CUstream) {
  FAKE_BEGIN(cuMemcpyHtoDAsync);
  if (size == sizeof(uint32_t)) {
    // As a GPU's copies and kernels see it, and tests that look at the same word.
    auto& source = *static_cast<uint32_t*>(const_cast<void*>(from));
    const uint32_t word = std::atomic_ref(source).load(std::memory_order_acquire);
    std::atomic_ref(*reinterpret_cast<uint32_t*>(to)).store(word, std::memory_order_release);
    return CUDA_SUCCESS;
  }
  std::memcpy(reinterpret_cast<void*>(to), from, size);
  if (state->corrupt && size > sizeof(uint32_t)) *reinterpret_cast<char*>(to) ^= 1;
  return CUDA_SUCCESS;
}
CUresult copy_out(void* to, CUdeviceptr from, size_t size, CUstream) {
  FAKE_BEGIN(cuMemcpyDtoHAsync);
  std::memcpy(to, reinterpret_cast<const void*>(from), size);
  return CUDA_SUCCESS;
}
CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream s) {
  FAKE_BEGIN(cuMemcpyAsync);
  std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), size);
  state->log.push_back(text("copy ", look_up(s)->id));
  return CUDA_SUCCESS;
}
CUresult set8(CUdeviceptr to, unsigned char value, size_t n, CUstream s) {
  FAKE_BEGIN(cuMemsetD8Async);
  if (n == 1) state->log.push_back(text("set ", look_up(s)->id));
  // Fresh memory is zero already, and large arenas are slow to touch.
  if (n <= kGranule) std::memset(reinterpret_cast<void*>(to), value, n);
  return CUDA_SUCCESS;
}
CUresult set32(CUdeviceptr to, unsigned value, size_t n, CUstream) {
  FAKE_BEGIN(cuMemsetD32Async);
  auto* words = reinterpret_cast<unsigned*>(to);
  std::fill(words, words + std::min<size_t>(n, kGranule / 4), value);
  return CUDA_SUCCESS;
}
CUresult module_load(CUmodule* m, const void*) {
  FAKE_BEGIN(cuModuleLoadData);
  *m = reinterpret_cast<CUmodule>(0x10);
  return CUDA_SUCCESS;
}
CUresult module_function(CUfunction* f, CUmodule, const char* name) {
  FAKE_BEGIN(cuModuleGetFunction);
  *f = reinterpret_cast<CUfunction>(const_cast<char*>(name));
  return CUDA_SUCCESS;
}
CUresult function_attribute(int* v, CUfunction_attribute, CUfunction) {
  FAKE_BEGIN(cuFuncGetAttribute);
  *v = 32;
  return CUDA_SUCCESS;
}
CUresult pointer_attribute(void* out, CUpointer_attribute a, CUdeviceptr address) {
  FAKE_BEGIN(cuPointerGetAttribute);
  const auto found = range_at(address);
  if (found == state->ranges.end()) return CUDA_ERROR_INVALID_VALUE;
  if (a == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE) {
    *static_cast<unsigned*>(out) = found->second.legacy;
  }
  if (a == CU_POINTER_ATTRIBUTE_BUFFER_ID) {
    *static_cast<unsigned long long*>(out) = found->second.buffer;
  }
  return CUDA_SUCCESS;
}
CUresult pointer_attributes(unsigned n, CUpointer_attribute* a, void** out, CUdeviceptr address) {
  FAKE_BEGIN(cuPointerGetAttributes);
  const auto found = range_at(address);
  const bool known = found != state->ranges.end();
  for (unsigned i = 0; i < n; ++i) {
    switch (a[i]) {
      case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *static_cast<unsigned*>(out[i]) = known ? CU_MEMORYTYPE_DEVICE : 0;
        break;
      case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *static_cast<int*>(out[i]) = known ? found->second.gpu : -2;
        break;
      case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *static_cast<CUdeviceptr*>(out[i]) = known ? found->first : 0;
        break;
      case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *static_cast<size_t*>(out[i]) = known ? found->second.size : 0;
        break;
      default:
        std::abort();
    }
  }
  return CUDA_SUCCESS;
}
CUresult ipc_get(CUipcMemHandle* h, CUdeviceptr address) {
  FAKE_BEGIN(cuIpcGetMemHandle);
  std::memcpy(h->reserved, &address, sizeof address);
  return CUDA_SUCCESS;
}
CUresult ipc_open(CUdeviceptr* address, CUipcMemHandle h, unsigned) {
  FAKE_BEGIN(cuIpcOpenMemHandle);
  std::memcpy(address, h.reserved, sizeof *address);
  ++state->ipc[*address];
  return CUDA_SUCCESS;
}
CUresult ipc_close(CUdeviceptr address) {
  std::lock_guard lock(state->mutex);
  --state->ipc[address];
  return CUDA_SUCCESS;
}

}  // namespace

Driver make_table() {
  Driver t;
  t.cuInit = init;
  t.cuDriverGetVersion = version;
  t.cuGetErrorName = error_name;
  t.cuGetErrorString = error_string;
  t.cuDeviceGetCount = device_count;
  t.cuDeviceGet = device_get;
  t.cuDeviceGetAttribute = device_attribute;
  t.cuDeviceGetName = device_name;
  t.cuDeviceGetUuid = device_uuid;
  t.cuDeviceCanAccessPeer = can_access;
  t.cuDevicePrimaryCtxRetain = primary_retain;
  t.cuDevicePrimaryCtxRelease = primary_release;
  t.cuCtxGetCurrent = get_current;
  t.cuCtxGetDevice = get_device;
  t.cuCtxGetId = get_id;
  t.cuCtxPushCurrent = push;
  t.cuCtxPopCurrent = pop;
  t.cuCtxEnablePeerAccess = enable_peer;
  t.cuThreadExchangeStreamCaptureMode = exchange_mode;
  t.cuStreamCreate = stream_create;
  t.cuStreamDestroy = stream_destroy;
  t.cuStreamGetId = stream_id;
  t.cuStreamGetCtx = stream_context;
  t.cuStreamQuery = stream_query;
  t.cuStreamSynchronize = stream_synchronize;
  t.cuStreamGetCaptureInfo = capture_info;
  t.cuStreamUpdateCaptureDependencies = update_dependencies;
  t.cuStreamWaitEvent = stream_wait;
  t.cuEventCreate = event_create;
  t.cuEventDestroy = event_destroy;
  t.cuEventQuery = event_query;
  t.cuEventRecord = event_record;
  t.cuLaunchKernelEx = launch;
  t.cuUserObjectCreate = object_create;
  t.cuUserObjectRelease = object_release;
  t.cuGraphRetainUserObject = graph_retain;
  t.cuMemGetAllocationGranularity = granularity;
  t.cuMemCreate = mem_create;
  t.cuMemRelease = mem_release;
  t.cuMemExportToShareableHandle = mem_export;
  t.cuMemImportFromShareableHandle = mem_import;
  t.cuMemRetainAllocationHandle = mem_retain;
  t.cuMemGetAllocationPropertiesFromHandle = mem_properties;
  t.cuMemGetAddressRange = address_range;
  t.cuMemAddressReserve = reserve;
  t.cuMemAddressFree = address_free;
  t.cuMemMap = mem_map;
  t.cuMemUnmap = mem_unmap;
  t.cuMemSetAccess = set_access;
  t.cuMemHostAlloc = host_alloc;
  t.cuMemFreeHost = host_free;
  t.cuMemHostGetDevicePointer = host_pointer;
  t.cuMemcpyHtoDAsync = copy_in;
  t.cuMemcpyDtoHAsync = copy_out;
  t.cuMemcpyAsync = copy;
  t.cuMemsetD8Async = set8;
  t.cuMemsetD32Async = set32;
  t.cuModuleLoadData = module_load;
  t.cuModuleGetFunction = module_function;
  t.cuFuncGetAttribute = function_attribute;
  t.cuPointerGetAttribute = pointer_attribute;
  t.cuPointerGetAttributes = pointer_attributes;
  t.cuIpcGetMemHandle = ipc_get;
  t.cuIpcOpenMemHandle = ipc_open;
  t.cuIpcCloseMemHandle = ipc_close;
  return t;
}

}  // namespace symm::cuda::fake
