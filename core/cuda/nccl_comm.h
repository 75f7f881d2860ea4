// One rank's NCCL communicator: made, used, watched and ended, with no wait that cannot end.
//
// NCCL's own waits have no deadline. Its non-blocking mode would give one, and costs a thread a
// call; so communicators are blocking ones, and what may wait for other ranks runs in a thread of
// its own. Whoever has waited long enough for that thread leaves it behind: it ends when NCCL
// does, and gives back what it made.
//
// All-reduces are enqueued in the caller's thread. Nothing on a GPU bounds NCCL's kernels: a
// watchdog asks events, and aborts the communicator when one that has begun is not over in time.
// Replays of graphs it does not see; they end by abort only. An abort frees nothing while a graph
// has work of the communicator (NCCL waits for them), so that later replays find its flag set.
//
// NCCL takes one call at a time on a communicator. That is the caller's duty where it uses
// symm_comm_nccl, so nothing is called on one behind a caller's back but what NCCL allows at any
// time: asking for errors, and the abort. Windows that were given up stay NCCL's until the next one
// is registered: NCCL places windows by what each rank still has, so that what goes must go on
// every rank, in one order.
#ifndef SYMM_CORE_CUDA_NCCL_COMM_H_
#define SYMM_CORE_CUDA_NCCL_COMM_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
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

  // Collective. Connects too, since a first call inside a capture could not. Null if it gave up;
  // throws NCCL, OUT_OF_MEMORY or TIMEOUT.
  static std::shared_ptr<NcclComm> create(const nccl::Library& library, const nccl::UniqueId& id,
                                          int rank, int size,
                                          std::shared_ptr<const Context> context, Deadline deadline,
                                          const GiveUp& give_up);
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  // Enqueues an all-reduce or a barrier. Throws NCCL. The context is current.
  void enqueue(const Call& call, const void* input, void* output, CUstream stream);

  // The watchdog: look() has the failure of a call that began more than `wait_timeout_ms` ago, or
  // one that NCCL has found by itself. `left`: a rank that takes no further part, or kNoRank.
  // mark() and watch() before a call, which may wait for other ranks itself, enqueued() after it.
  std::shared_ptr<Event> mark(CUstream stream);
  void watch(const Call& call, std::shared_ptr<Event> before);
  void enqueued(std::shared_ptr<const Event> after);
  std::optional<Failure> look(int32_t wait_timeout_ms, int left);
  std::optional<Failure> asynchronous_error();

  // Ends what NCCL has enqueued and will enqueue. Any thread, does not block.
  void abort() noexcept;

  // Collective. Memory as an NCCL window, by a number that is the same on every rank. Once the last
  // reference has gone it is given up; `keep` stays until NCCL has let it go. Before it, windows
  // that every rank has given up, `gone` in ascending order, go. Null where NCCL gives no window,
  // or if it gave up. Throws NCCL or TIMEOUT.
  std::shared_ptr<void> register_window(uint64_t number, void* pointer, size_t bytes,
                                        std::shared_ptr<void> keep, std::vector<uint64_t> gone,
                                        Deadline deadline, const GiveUp& give_up);
  // The numbers of windows that this rank has given up and NCCL still has, ascending.
  std::vector<uint64_t> given_up();
  // Of a window that other ranks have, and this one never got.
  void never_had(uint64_t number);

  // 4 bytes on the GPU that nobody reads.
  CUdeviceptr word() const { return word_->address(); }
  nccl::Comm get() const { return comm_; }
  const nccl::Library& library() const { return library_; }

 private:
  NcclComm(const nccl::Library& library, std::shared_ptr<const Context> context);
  void initialise(const nccl::UniqueId& id, int rank, int size,
                  const std::function<bool()>& abandoned);
  void connect(const std::function<bool()>& abandoned);
  // A call of NCCL: counted, so that the end may wait for it. Throws NCCL if that has begun.
  int counted(const std::function<int()>& call);
  void release_calls();
  void let_go(uint64_t number);
  // True for one caller, whose business the communicator's end then is.
  bool begin_ending();
  void check(int result, const char* function) const;
  // NCCL_COMM_BLOCKING=0 makes calls return before they are done: waits until they are.
  int finished(int result, const std::function<bool()>& stop);

  struct NcclWindow;

  const nccl::Library& library_;
  const std::shared_ptr<const Context> context_;
  nccl::Comm comm_ = nullptr;
  std::shared_ptr<Mapping> word_;  // what barriers reduce

  std::mutex mutex_;  // for what follows
  std::condition_variable changed_;
  int calls_ = 0;  // of NCCL, under way in callers' threads
  bool ending_ = false;

  struct GivenUp {
    nccl::Window window;  // null: never had
    std::shared_ptr<void> keep;
  };
  std::map<uint64_t, GivenUp> given_up_;  // by number

  struct Watched {
    Call call;
    std::shared_ptr<Event> before;
    std::shared_ptr<const Event> after;  // null: the call is still under way
    std::optional<Clock::time_point> begun;
  };
  std::optional<Clock::time_point> left_since_;  // some rank, as far as look() knows
  std::deque<Watched> watched_;                  // oldest first
  std::vector<std::shared_ptr<Event>> spare_;    // for mark()
};

}  // namespace symm::cuda

#endif  // SYMM_CORE_CUDA_NCCL_COMM_H_
