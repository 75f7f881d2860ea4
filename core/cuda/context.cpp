#include "core/cuda/context.h"

namespace symm::cuda {

Context::Context(int ordinal) : ordinal_(ordinal) {
  SYMM_CUDA_CHECK(cuDeviceGet, (&device_, ordinal));
  SYMM_CUDA_CHECK(cuDevicePrimaryCtxRetain, (&context_, device_));
}

Context::~Context() { driver().cuDevicePrimaryCtxRelease(device_); }

int Context::attribute(CUdevice_attribute attribute) const {
  int value = 0;
  SYMM_CUDA_CHECK(cuDeviceGetAttribute, (&value, attribute, device_));
  return value;
}

CurrentContext::CurrentContext(const Context& context) {
  CUcontext current = nullptr;
  SYMM_CUDA_CHECK(cuCtxGetCurrent, (&current));
  if (current == context.get()) return;
  SYMM_CUDA_CHECK(cuCtxPushCurrent, (context.get()));
  pushed_ = true;
}

CurrentContext::~CurrentContext() {
  CUcontext popped = nullptr;
  if (pushed_) driver().cuCtxPopCurrent(&popped);
}

RelaxedCapture::RelaxedCapture() { SYMM_CUDA_CHECK(cuThreadExchangeStreamCaptureMode, (&mode_)); }

RelaxedCapture::~RelaxedCapture() { driver().cuThreadExchangeStreamCaptureMode(&mode_); }

ReleaseWork::ReleaseWork(const Context& context) noexcept
    : pushed_(driver().cuCtxPushCurrent(context.get()) == CUDA_SUCCESS) {
  driver().cuThreadExchangeStreamCaptureMode(&mode_);
}

ReleaseWork::~ReleaseWork() {
  driver().cuThreadExchangeStreamCaptureMode(&mode_);
  CUcontext popped = nullptr;
  if (pushed_) driver().cuCtxPopCurrent(&popped);
}

Stream::Stream(std::shared_ptr<const Context> context) : context_(std::move(context)) {
  const HostWork work(*context_);
  SYMM_CUDA_CHECK(cuStreamCreate, (&stream_, CU_STREAM_NON_BLOCKING));
}

Stream::~Stream() { driver().cuStreamDestroy(stream_); }

void Stream::synchronize() const { SYMM_CUDA_CHECK(cuStreamSynchronize, (stream_)); }

Event::Event(std::shared_ptr<const Context> context) : context_(std::move(context)) {
  const CurrentContext current(*context_);
  SYMM_CUDA_CHECK(cuEventCreate, (&event_, CU_EVENT_DISABLE_TIMING));
}

Event::~Event() { driver().cuEventDestroy(event_); }

bool Event::is_done() const noexcept {
  const CUresult result = driver().cuEventQuery(event_);
  return result != CUDA_ERROR_NOT_READY && !is_capture_error(result);
}

}  // namespace symm::cuda
