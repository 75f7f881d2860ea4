// The thread that ends what enqueued work, graphs and freed handles leave behind.
//
// Giving a handle back must not wait for the GPU, a graph's destructor must not call CUDA, and the
// library's helper thread must not block: so what goes last goes here. It also looks, every few
// milliseconds while there are communicators of GPUs, whether a kernel has reported an error, so
// that every rank learns the cause even if the host that knows it makes no further call; and it
// carries aborts to GPUs, as a copy may have to wait for the driver.
//
// One a process, started by the first user and ended with the last. It never waits for the GPU:
// events are asked, not synchronised with.
#ifndef SYMM_CORE_CUDA_REAPER_H_
#define SYMM_CORE_CUDA_REAPER_H_

#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "core/cuda/context.h"
#include "core/deadline.h"

namespace symm::cuda {

class Reaper {
 public:
  // The running one, or a new one. Whoever holds it is a user.
  static std::shared_ptr<Reaper> acquire();
  ~Reaper();

  // From any thread, CUDA's own included; blocks for a queue's lock at most. `last` is released in
  // the thread, once `after` (null: at once) is done.
  void hold(std::shared_ptr<void> last, std::shared_ptr<const Event> after);

  // Asked now and then, in the thread.
  class Watched {
   public:
    virtual ~Watched() = default;
    virtual void look() = 0;
  };
  void watch(const std::weak_ptr<Watched>& watched);

  // Returns once nothing is left that could be released now: memory that was given back is back.
  // False after the deadline.
  bool settle(Deadline deadline);

  // The process exits: no call of CUDA from here any more. What is held stays held.
  static void stop_at_exit() noexcept;

 private:
  Reaper();
  // The thread's; it holds no reference to the Reaper.
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    struct Held {
      std::shared_ptr<void> last;
      std::shared_ptr<const Event> after;
    };
    std::list<Held> held;
    std::vector<std::weak_ptr<Watched>> watched;
    bool working = false;
    uint64_t looks = 0;  // that are over
    bool stop = false;
  };
  static void run(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace symm::cuda

#endif  // SYMM_CORE_CUDA_REAPER_H_
