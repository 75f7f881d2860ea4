// A rank's pinned host memory: where its kernels report and long waits look for an abort, and what
// is copied to GPUs from.
#ifndef SYMM_CORE_CUDA_HOST_PAGE_H_
#define SYMM_CORE_CUDA_HOST_PAGE_H_

#include <atomic>
#include <memory>

#include "core/cuda/context.h"
#include "kernels/cuda/abi.h"

namespace symm::cuda {

class HostPage {
 public:
  static constexpr size_t kProbeBytes = sizeof(RecordSlot);
  struct Contents {
    ErrorRecord error;
    uint32_t one;  // the source of the copies into peers' `left` words
    alignas(64) std::byte probes[kMostRanks][kProbeBytes];
    std::byte seen[kMostRanks][kProbeBytes];
  };

  explicit HostPage(std::shared_ptr<const Context> context);
  ~HostPage();
  HostPage(const HostPage&) = delete;
  HostPage& operator=(const HostPage&) = delete;

  Contents& operator*() { return *contents_; }
  Contents* operator->() { return contents_; }
  // As the GPU sees it.
  ErrorRecord* error_on_device() const { return error_on_device_; }
  // Whether a kernel has given up; the record is then complete.
  bool has_error() const {
    // Acquire, with the kernel's release at system scope: the record was written before `valid`.
    return std::atomic_ref(contents_->error.valid).load(std::memory_order_acquire) != 0;
  }
  const ErrorRecord& error() const { return contents_->error; }

 private:
  const std::shared_ptr<const Context> context_;
  Contents* contents_ = nullptr;
  ErrorRecord* error_on_device_ = nullptr;
};

}  // namespace symm::cuda

#endif  // SYMM_CORE_CUDA_HOST_PAGE_H_
