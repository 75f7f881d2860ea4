#include "core/cuda/memory.h"

#include <map>

#include "core/memory.h"
#include "core/process.h"

namespace symm::cuda {
namespace {

// Guarded by GlobalLock::kMemory. Never destroyed.
std::map<std::string, std::weak_ptr<Mapping>>& by_key() {
  static auto* instance = new std::map<std::string, std::weak_ptr<Mapping>>;
  return *instance;
}

}  // namespace

CUmemAllocationProp properties_on(int ordinal) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = ordinal;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return properties;
}

size_t granularity_on(int ordinal) {
  const CUmemAllocationProp properties = properties_on(ordinal);
  size_t granularity = 0;
  SYMM_CUDA_CHECK(cuMemGetAllocationGranularity,
                  (&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  return granularity;
}

std::shared_ptr<Allocation> Allocation::create(const Context& context, size_t bytes) {
  const std::shared_ptr<Allocation> allocation(new Allocation(bytes));
  const CUmemAllocationProp properties = properties_on(context.ordinal());
  check(driver().cuMemCreate(&allocation->handle_, bytes, &properties, 0), "cuMemCreate",
        text(bytes, " bytes on GPU ", context.ordinal()));
  return allocation;
}

std::shared_ptr<Allocation> Allocation::import(const Fd& fd, size_t bytes) {
  const std::shared_ptr<Allocation> allocation(new Allocation(bytes));
  // The driver takes the number itself where a pointer to the handle is expected.
  void* const number = reinterpret_cast<void*>(static_cast<uintptr_t>(fd.get()));
  SYMM_CUDA_CHECK(cuMemImportFromShareableHandle,
                  (&allocation->handle_, number, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  return allocation;
}

std::shared_ptr<Allocation> Allocation::retain(const void* address, size_t bytes) {
  const std::shared_ptr<Allocation> allocation(new Allocation(bytes));
  SYMM_CUDA_CHECK(cuMemRetainAllocationHandle, (&allocation->handle_, const_cast<void*>(address)));
  return allocation;
}

Allocation::~Allocation() {
  if (handle_ != 0) driver().cuMemRelease(handle_);
}

std::shared_ptr<Fd> Allocation::export_fd() const {
  int number = -1;
  SYMM_CUDA_CHECK(cuMemExportToShareableHandle,
                  (&number, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  return std::make_shared<Fd>(number);
}

Mapping::Mapping(std::vector<std::shared_ptr<Allocation>> allocations)
    : allocations_(std::move(allocations)) {
  for (const auto& allocation : allocations_) size_ += allocation->size();
  check(driver().cuMemAddressReserve(&address_, size_, 0, 0, 0), "cuMemAddressReserve",
        text(size_, " bytes of addresses"));
  try {
    CUdeviceptr at = address_;
    for (const auto& allocation : allocations_) {
      SYMM_CUDA_CHECK(cuMemMap, (at, allocation->size(), 0, allocation->get(), 0));
      at += allocation->size();
      ++mapped_;
    }
  } catch (...) {
    unmap();
    throw;
  }
}

Mapping::~Mapping() { unmap(); }

void Mapping::unmap() {
  CUdeviceptr at = address_;
  for (size_t i = 0; i < mapped_; ++i) {
    driver().cuMemUnmap(at, allocations_[i]->size());
    at += allocations_[i]->size();
  }
  driver().cuMemAddressFree(address_, size_);
}

void Mapping::grant(int ordinal) {
  std::lock_guard lock(mutex_);
  if (granted_.count(ordinal) != 0) return;
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = ordinal;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  check(driver().cuMemSetAccess(address_, size_, &access, 1), "cuMemSetAccess",
        text("GPU ", ordinal, " to ", size_, " bytes"));
  granted_.insert(ordinal);
}

IpcMapping::IpcMapping(std::shared_ptr<const Context> context, const CUipcMemHandle& handle)
    : context_(std::move(context)) {
  SYMM_CUDA_CHECK(cuIpcOpenMemHandle, (&address_, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
}

IpcMapping::~IpcMapping() {
  const ReleaseWork work(*context_);
  driver().cuIpcCloseMemHandle(address_);
}

void share_in_process(const std::string& key, const std::shared_ptr<Mapping>& mapping) {
  std::lock_guard lock(global_mutex(GlobalLock::kMemory));
  std::erase_if(by_key(), [](const auto& entry) { return entry.second.expired(); });
  by_key()[key] = mapping;
}

std::shared_ptr<Mapping> find_in_process(const std::string& key) {
  std::lock_guard lock(global_mutex(GlobalLock::kMemory));
  const auto found = by_key().find(key);
  return found == by_key().end() ? nullptr : found->second.lock();
}

std::shared_ptr<Mapping> map_private(const Context& context, size_t bytes, const Stream& stream) {
  const size_t whole = round_up(bytes, granularity_on(context.ordinal()));
  auto mapping = std::make_shared<Mapping>(std::vector{Allocation::create(context, whole)});
  mapping->grant(context.ordinal());
  SYMM_CUDA_CHECK(cuMemsetD8Async, (mapping->address(), 0, whole, stream.get()));
  return mapping;
}

std::shared_ptr<Mapping> map_own(std::shared_ptr<Allocation> allocation, const std::string& key,
                                 const Context& context, const Stream& stream) {
  auto mapping = std::make_shared<Mapping>(std::vector{std::move(allocation)});
  mapping->grant(context.ordinal());
  SYMM_CUDA_CHECK(cuMemsetD8Async, (mapping->address(), 0, mapping->size(), stream.get()));
  stream.synchronize();
  share_in_process(key, mapping);
  return mapping;
}

std::shared_ptr<Mapping> map_of_rank(int rank, const Fd& fd, size_t bytes, const std::string& key,
                                     const Context& context) {
  auto mapping = fd ? std::make_shared<Mapping>(std::vector{Allocation::import(fd, bytes)})
                    : find_in_process(key);
  if (!mapping) {
    throw Error(SYMM_INTERNAL, text("rank ", rank, " of this process did not map its memory"));
  }
  mapping->grant(context.ordinal());
  return mapping;
}

}  // namespace symm::cuda
