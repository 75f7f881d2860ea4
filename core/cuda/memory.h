// GPU memory that several processes map: physical allocations, mappings of them, and what threads
// of one process share.
#ifndef SYMM_CORE_CUDA_MEMORY_H_
#define SYMM_CORE_CUDA_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "core/cuda/context.h"
#include "core/socket.h"

namespace symm::cuda {

// Of memory on that GPU that other processes can map.
CUmemAllocationProp properties_on(int ordinal);
// What its sizes are multiples of.
size_t granularity_on(int ordinal);

// A reference to physical memory (a CUmemGenericAllocationHandle): the memory lives as long as any
// reference or mapping, in any process, does.
class Allocation {
 public:
  // `bytes` is a multiple of the granularity.
  static std::shared_ptr<Allocation> create(const Context& context, size_t bytes);
  // From export_fd() of another process; the descriptor may be closed afterwards.
  static std::shared_ptr<Allocation> import(const Fd& fd, size_t bytes);
  // The one that is mapped at an address of the caller's.
  static std::shared_ptr<Allocation> retain(const void* address, size_t bytes);
  ~Allocation();
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  std::shared_ptr<Fd> export_fd() const;
  CUmemGenericAllocationHandle get() const { return handle_; }
  size_t size() const { return size_; }

 private:
  explicit Allocation(size_t bytes) : size_(bytes) {}
  CUmemGenericAllocationHandle handle_ = 0;
  const size_t size_;
};

// A range of addresses over allocations, one behind the other.
class Mapping {
 public:
  explicit Mapping(std::vector<std::shared_ptr<Allocation>> allocations);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  // That GPU of this process may read and write it. Idempotent, any thread.
  void grant(int ordinal);

  std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }
  CUdeviceptr address() const { return address_; }
  size_t size() const { return size_; }
  const std::vector<std::shared_ptr<Allocation>>& allocations() const { return allocations_; }

 private:
  void unmap();

  const std::vector<std::shared_ptr<Allocation>> allocations_;
  CUdeviceptr address_ = 0;
  size_t size_ = 0;
  size_t mapped_ = 0;  // allocations
  std::mutex mutex_;
  std::set<int> granted_;
};

// Memory of another process by CUDA IPC. Opening one handle several times gives one address, which
// CUDA counts.
class IpcMapping {
 public:
  IpcMapping(std::shared_ptr<const Context> context, const CUipcMemHandle& handle);
  ~IpcMapping();
  IpcMapping(const IpcMapping&) = delete;
  IpcMapping& operator=(const IpcMapping&) = delete;
  std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }

 private:
  const std::shared_ptr<const Context> context_;
  CUdeviceptr address_ = 0;
};

// Ranks that are threads of one process use one mapping of each memory: whoever maps it first puts
// it here under a key that names it, and it stays as long as somebody has it.
void share_in_process(const std::string& key, const std::shared_ptr<Mapping>& mapping);
// Null if nobody has it.
std::shared_ptr<Mapping> find_in_process(const std::string& key);

// New memory for one rank's GPU alone, of at least `bytes`, which the stream zeroes.
std::shared_ptr<Mapping> map_private(const Context& context, size_t bytes, const Stream& stream);

// A rank's own new memory: zeroed, for its GPU to read and write, and shared under `key`.
std::shared_ptr<Mapping> map_own(std::shared_ptr<Allocation> allocation, const std::string& key,
                                 const Context& context, const Stream& stream);

// Another rank's memory, for that context's GPU to read and write: from its descriptor, or, of a
// rank of this process, what it has shared under `key`.
std::shared_ptr<Mapping> map_of_rank(int rank, const Fd& fd, size_t bytes, const std::string& key,
                                     const Context& context);

}  // namespace symm::cuda

#endif  // SYMM_CORE_CUDA_MEMORY_H_
