#include "core/cuda/caller_memory.h"

namespace symm::cuda {
namespace {

CUdeviceptr address_of(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

// Memory of the allocation, or of the reservation for cuMem memory, around an address.
struct Around {
  unsigned type = 0;  // CUmemorytype; 0: CUDA knows nothing of it
  int ordinal = -1;
  CUdeviceptr begin = 0;
  size_t bytes = 0;
};

Around around(CUdeviceptr address) {
  Around result;
  CUpointer_attribute attributes[] = {
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
      CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  void* values[] = {&result.type, &result.ordinal, &result.begin, &result.bytes};
  // Never fails for an address that CUDA does not know.
  SYMM_CUDA_CHECK(cuPointerGetAttributes, (4, attributes, values, address));
  return result;
}

constexpr char kRemedy[] =
    "; use memory of symm_window_alloc, of cudaMalloc, or of cuMemCreate with "
    "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR (PyTorch: expandable_segments:True)";

// The parts of cuMem memory that the range touches, each whole.
Shareable find_allocations(const void* pointer, size_t bytes) {
  Shareable found;
  const CUdeviceptr begin = address_of(pointer);
  CUdeviceptr at = begin;
  while (at < begin + bytes) {
    CUdeviceptr base = 0;
    size_t size = 0;
    const CUresult result = driver().cuMemGetAddressRange(&base, &size, at);
    if (result != CUDA_SUCCESS || size == 0 || base + size <= at) {
      throw Error(SYMM_INVALID_ARGUMENT,
                  text("pointer ", pointer, ": only ", at - begin, " of ", bytes,
                       " bytes are mapped (", error_text(result, "cuMemGetAddressRange"), ")"));
    }
    if (found.allocations.size() == kMostAllocations) {
      throw Error(SYMM_UNSUPPORTED,
                  text("pointer ", pointer, ": the ", bytes, " bytes are made of more than ",
                       kMostAllocations, " allocations; register smaller ranges"));
    }
    if (found.allocations.empty()) found.offset = begin - base;
    auto allocation = Allocation::retain(reinterpret_cast<const void*>(base), size);
    CUmemAllocationProp properties{};
    SYMM_CUDA_CHECK(cuMemGetAllocationPropertiesFromHandle, (&properties, allocation->get()));
    if ((properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0) {
      throw Error(SYMM_UNSUPPORTED,
                  text("pointer ", pointer,
                       ": the memory was made by cuMemCreate without a file descriptor, so that "
                       "other processes cannot map it",
                       kRemedy));
    }
    found.allocations.push_back(std::move(allocation));
    at = base + size;
  }
  return found;
}

}  // namespace

void check_device_memory(const char* name, const void* pointer, size_t bytes,
                         const Context& context) {
  if (bytes == 0) return;
  const CUdeviceptr begin = address_of(pointer);
  CUdeviceptr at = begin;
  // Mostly once: neighbouring allocations of other allocators may make up one buffer.
  while (at < begin + bytes) {
    const Around memory = around(at);
    if (memory.type != CU_MEMORYTYPE_DEVICE) {
      throw Error(SYMM_INVALID_ARGUMENT,
                  at == begin
                      ? text(name, " ", pointer, " is not memory of a GPU",
                             memory.type == CU_MEMORYTYPE_HOST ? " but pinned host memory" : "",
                             "; the communicator is on GPU ", context.ordinal())
                      : text(name, " ", pointer, " with ", bytes, " bytes reaches ",
                             begin + bytes - at, " bytes past the end of its allocation"));
    }
    if (memory.ordinal != context.ordinal()) {
      throw Error(SYMM_INVALID_ARGUMENT,
                  text(name, " ", pointer, " is memory of GPU ", memory.ordinal,
                       "; the communicator is on GPU ", context.ordinal()));
    }
    if (memory.bytes == 0) return;  // nothing more is known
    at = memory.begin + memory.bytes;
  }
}

Shareable find_shareable(const void* pointer, size_t bytes, const Context& context) {
  check_device_memory("pointer", pointer, bytes, context);
  const CUdeviceptr address = address_of(pointer);
  unsigned legacy = 0;
  SYMM_CUDA_CHECK(cuPointerGetAttribute,
                  (&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address));
  if (legacy == 0) {
    // cuMem memory, or memory that only its pool could share.
    CUmemGenericAllocationHandle handle = 0;
    if (driver().cuMemRetainAllocationHandle(&handle, const_cast<void*>(pointer)) != CUDA_SUCCESS) {
      throw Error(SYMM_UNSUPPORTED,
                  text("pointer ", pointer,
                       " is memory of a pool (cudaMallocAsync) or managed memory, which other "
                       "processes cannot map",
                       kRemedy));
    }
    driver().cuMemRelease(handle);
    return find_allocations(pointer, bytes);
  }
  const Around memory = around(address);
  if (address + bytes > memory.begin + memory.bytes) {
    throw Error(SYMM_INVALID_ARGUMENT, text("pointer ", pointer, " with ", bytes,
                                            " bytes spans several allocations; register each"));
  }
  Shareable found;
  found.offset = address - memory.begin;
  SYMM_CUDA_CHECK(cuIpcGetMemHandle, (&found.ipc, memory.begin));
  SYMM_CUDA_CHECK(cuPointerGetAttribute,
                  (&found.buffer_id, CU_POINTER_ATTRIBUTE_BUFFER_ID, address));
  return found;
}

void check_buffer_id(const void* pointer, unsigned long long buffer_id) {
  unsigned long long now = 0;
  const CUresult result =
      driver().cuPointerGetAttribute(&now, CU_POINTER_ATTRIBUTE_BUFFER_ID, address_of(pointer));
  if (result == CUDA_SUCCESS && now == buffer_id) return;
  throw Error(SYMM_INVALID_ARGUMENT,
              text("the memory at ", pointer,
                   " was freed after it was registered; free the window first, and register what "
                   "is there now"));
}

}  // namespace symm::cuda
