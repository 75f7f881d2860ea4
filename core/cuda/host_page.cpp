#include "core/cuda/host_page.h"

#include <new>

namespace symm::cuda {

HostPage::HostPage(std::shared_ptr<const Context> context) : context_(std::move(context)) {
  void* memory = nullptr;
  check(driver().cuMemHostAlloc(&memory, sizeof(Contents),
                                CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
        "cuMemHostAlloc", text(sizeof(Contents), " bytes of pinned memory"));
  contents_ = new (memory) Contents{};
  contents_->one = 1;
  CUdeviceptr on_device = 0;
  const CUresult result = driver().cuMemHostGetDevicePointer(&on_device, &contents_->error, 0);
  if (result != CUDA_SUCCESS) {
    driver().cuMemFreeHost(memory);
    check(result, "cuMemHostGetDevicePointer");
  }
  error_on_device_ = reinterpret_cast<ErrorRecord*>(on_device);
}

HostPage::~HostPage() {
  const ReleaseWork work(*context_);
  driver().cuMemFreeHost(contents_);
}

}  // namespace symm::cuda
