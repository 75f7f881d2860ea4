// Windows, as calls of a communicator: how their memory is shared is its backend's business.
#include "core/comm.h"
#include "core/window.h"

namespace symm {

std::shared_ptr<Window> Comm::alloc_window(size_t bytes, bool nccl, const Failure& failure) {
  std::shared_ptr<Window> window;
  run([&] {
    if (device() == SYMM_CPU) require_one_host("windows");
    Call call;
    call.form = Form::kWindowAlloc;
    call.count = bytes;
    backend_->begin_setup(call);
    window = backend_->alloc_window(windows_made_++, bytes, nccl, failure, set_up_deadline());
  });
  return window;
}

std::shared_ptr<Window> Comm::register_window(const CallersMemory& memory, const Failure& failure) {
  std::shared_ptr<Window> window;
  run([&] {
    if (device() == SYMM_CPU) require_one_host("windows");
    Call call;
    call.form = Form::kWindowRegister;
    call.count = memory.bytes;
    backend_->begin_setup(call);
    window = backend_->register_window(windows_made_++, memory, failure, set_up_deadline());
  });
  return window;
}

}  // namespace symm
