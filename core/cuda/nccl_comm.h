// One rank's NCCL communicator: made, used, watched and ended, with no wait that cannot end.
//
// NCCL's own waits have no deadline. Its non-blocking mode would give one, and costs a thread a
// call; so communicators are blocking ones, and what may wait for other ranks runs in a thread of
// its own. Whoever has waited long enough for that thread leaves it behind: it ends when NCCL
// does, and gives back what it made.
//
// All-reduces are enqueued in the caller's thread. Nothing on a GPU bounds NCCL's kernels: a
// watchdog asks events, and aborts the communicator when one that has begun is not over in time.
// Replays of graphs it does not see; they end by abort only.
#ifndef SYMM_CORE_CUDA_NCCL_COMM_H_
#define SYMM_CORE_CUDA_NCCL_COMM_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/call.h"
#include "core/cuda/context.h"
#include "core/cuda/memory.h"
#include "core/deadline.h"
#include "core/messages.h"
#include "core/nccl/library.h"

namespace symm::cuda {

class NcclComm : public std::enable_shared_from_this<NcclComm> {
 public:
  // Whether waiting has become pointless: another rank has failed. Asked every few milliseconds.
  using GiveUp = std::function<bool()>;

  // Collective. Connects too, since a first call inside a capture could not: as far as that depends
  // on sizes for messages up to `most_bytes`. Null if it gave up; throws NCCL, OUT_OF_MEMORY or
  // TIMEOUT.
  static std::shared_ptr<NcclComm> create(const nccl::Library& library, const nccl::UniqueId& id,
                                          int rank, int size,
                                          std::shared_ptr<const Context> context,
                                          uint64_t most_bytes, Deadline deadline,
                                          const GiveUp& give_up);
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  // Enqueues an all-reduce or a barrier. Throws NCCL. The context is current.
  void enqueue(const Call& call, const void* input, void* output, CUstream stream, bool captured);

  // The watchdog: look() has the failure of a call that began more than `wait_timeout_ms` ago, or
  // one that NCCL has found by itself. `left`: a rank that takes no further part, or kNoRank.
  // mark() before a call, watch() after it.
  std::shared_ptr<Event> mark(CUstream stream);
  void watch(const Call& call, std::shared_ptr<Event> before, std::shared_ptr<const Event> after);
  std::optional<Failure> look(int32_t wait_timeout_ms, int left);
  std::optional<Failure> asynchronous_error();

  // Ends what NCCL has enqueued and will enqueue. Any thread, does not block.
  void abort() noexcept;

  // Collective. Memory as an NCCL window, until the last reference goes; `keep` stays as long. Null
  // where NCCL gives no window, or if it gave up. Throws NCCL or TIMEOUT.
  std::shared_ptr<void> register_window(void* pointer, size_t bytes, std::shared_ptr<void> keep,
                                        Deadline deadline, const GiveUp& give_up);

  nccl::Comm get() const { return comm_; }
  const nccl::Library& library() const { return library_; }

  // Waits until no thread of this process is in a set-up or ending call of NCCL, or the deadline.
  static void settle(Deadline deadline) noexcept;

 private:
  NcclComm(const nccl::Library& library, std::shared_ptr<const Context> context);
  void initialise(const nccl::UniqueId& id, int rank, int size);
  void connect(uint64_t most_bytes, const std::function<bool()>& abandoned);
  // True for one caller, whose business the communicator's end then is.
  bool begin_ending();
  void check(int result, const char* function) const;

  struct NcclWindow;

  const nccl::Library& library_;
  const std::shared_ptr<const Context> context_;
  nccl::Comm comm_ = nullptr;
  std::shared_ptr<Mapping> word_;  // what barriers reduce

  std::mutex mutex_;  // for what follows
  std::condition_variable changed_;
  int calls_ = 0;  // of NCCL, under way in callers' threads
  bool ending_ = false;
  bool captured_ = false;  // graphs may have work of it
  bool revoked_ = false;   // ended, and still to be destroyed

  struct Watched {
    Call call;
    std::shared_ptr<Event> before;
    std::shared_ptr<const Event> after;
    std::optional<Clock::time_point> begun;
  };
  std::deque<Watched> watched_;                // oldest first
  std::vector<std::shared_ptr<Event>> spare_;  // for mark()
};

}  // namespace symm::cuda

#endif  // SYMM_CORE_CUDA_NCCL_COMM_H_
