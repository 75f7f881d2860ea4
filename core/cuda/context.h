// A GPU of this process, its primary context, and guards for the thread that uses it.
#ifndef SYMM_CORE_CUDA_CONTEXT_H_
#define SYMM_CORE_CUDA_CONTEXT_H_

#include <memory>

#include "core/cuda/driver.h"

namespace symm::cuda {

// Calls CUDA for a check with the function's own name: SYMM_CUDA_CHECK(cuMemMap, (address, ...)).
#define SYMM_CUDA_CHECK(function, arguments) \
  ::symm::cuda::check(::symm::cuda::driver().function arguments, #function)

// The primary context, which the CUDA runtime uses too; retained as long as this lives.
class Context {
 public:
  explicit Context(int ordinal);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  int ordinal() const { return ordinal_; }
  CUdevice device() const { return device_; }
  CUcontext get() const { return context_; }
  int attribute(CUdevice_attribute attribute) const;

 private:
  const int ordinal_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
};

// The context is the calling thread's current one while this lives; the caller's is restored.
class CurrentContext {
 public:
  explicit CurrentContext(const Context& context);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  bool pushed_ = false;
};

// Host work of ours beside a caller's capture: in relaxed mode allocations, mappings and work on
// streams of our own neither fail because some thread is capturing nor break that capture.
class RelaxedCapture {
 public:
  RelaxedCapture();
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

// Both, for set-up work.
struct HostWork {
  explicit HostWork(const Context& context) : current(context) {}
  CurrentContext current;
  RelaxedCapture relaxed;
};

// Both, for giving back what needs a current context. What CUDA says to that is not looked at: the
// call that gives back is tried in any case, and where the context is gone its memory went with it.
class ReleaseWork {
 public:
  explicit ReleaseWork(const Context& context) noexcept;
  ~ReleaseWork();
  ReleaseWork(const ReleaseWork&) = delete;
  ReleaseWork& operator=(const ReleaseWork&) = delete;

 private:
  bool pushed_ = false;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

// A stream of our own: no implicit order with the legacy default stream.
class Stream {
 public:
  explicit Stream(std::shared_ptr<const Context> context);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  CUstream get() const { return stream_; }
  // Blocks: only short work is enqueued on streams of our own.
  void synchronize() const;

 private:
  const std::shared_ptr<const Context> context_;
  CUstream stream_ = nullptr;
};

class Event {
 public:
  explicit Event(std::shared_ptr<const Context> context);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  CUevent get() const { return event_; }
  // Also where CUDA cannot say any more: a context in error runs nothing. Asked in relaxed mode, as
  // another thread's capture would forbid it, and be broken by it.
  bool is_done() const noexcept;

 private:
  const std::shared_ptr<const Context> context_;
  CUevent event_ = nullptr;
};

}  // namespace symm::cuda

#endif  // SYMM_CORE_CUDA_CONTEXT_H_
