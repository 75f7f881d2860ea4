// The library's own threads in NCCL, and how they end with the process.
//
// NCCL and the CUDA runtime inside it have exit handlers and static objects. exit() runs handlers
// in the reverse of the order in which they came, so those of a library that was loaded late go
// first: a call that is in NCCL then uses what is gone. So the wait for such calls is a handler
// that comes after NCCL's, and once it has begun these threads make no other call.
#ifndef SYMM_CORE_CUDA_NCCL_THREADS_H_
#define SYMM_CORE_CUDA_NCCL_THREADS_H_

#include <functional>

namespace symm::cuda {

// Runs `body` in a thread of its own, which the exit waits for, for a bounded time. An errno value,
// or 0. ECANCELED: the process exits; what `body` holds then stays.
int start_nccl_thread(std::function<void()> body);

// While it lives, a thread of the library is in NCCL; false if it must not, as the process exits.
class InNccl {
 public:
  InNccl();
  ~InNccl();
  InNccl(const InNccl&) = delete;
  InNccl& operator=(const InNccl&) = delete;
  explicit operator bool() const { return entered_; }

 private:
  const bool entered_;
};

// Has the exit wait before what of NCCL is there now ends. Before and after each communicator is
// made: what NCCL loads and sets up only then has handlers too. The first few times count.
void end_before_nccl() noexcept;

}  // namespace symm::cuda

#endif  // SYMM_CORE_CUDA_NCCL_THREADS_H_
