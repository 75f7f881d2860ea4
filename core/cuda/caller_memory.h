// What is behind an address of the caller's.
#ifndef SYMM_CORE_CUDA_CALLER_MEMORY_H_
#define SYMM_CORE_CUDA_CALLER_MEMORY_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "core/cuda/context.h"
#include "core/cuda/memory.h"

namespace symm::cuda {

// Throws INVALID_ARGUMENT unless [pointer, pointer + bytes) is memory of that GPU, all of it
// allocated. Of no bytes nothing is asked.
void check_device_memory(const char* name, const void* pointer, size_t bytes,
                         const Context& context);

// Memory to be registered, as others can map it.
struct Shareable {
  // cuMem memory: what is mapped there, whole, and where in it the pointer is.
  std::vector<std::shared_ptr<Allocation>> allocations;
  size_t offset = 0;
  // Else cudaMalloc memory, by CUDA IPC: the allocation's handle, and `offset` in it.
  CUipcMemHandle ipc{};
  unsigned long long buffer_id = 0;  // changes when the memory is freed and allocated again
};

constexpr size_t kMostAllocations = 1024;  // of one registered range

// Throws INVALID_ARGUMENT as above; UNSUPPORTED with the remedy for memory that no other process
// can map.
Shareable find_shareable(const void* pointer, size_t bytes, const Context& context);

// Throws INVALID_ARGUMENT where the memory at a registered address is no longer what it was.
void check_buffer_id(const void* pointer, unsigned long long buffer_id);

}  // namespace symm::cuda

#endif  // SYMM_CORE_CUDA_CALLER_MEMORY_H_
