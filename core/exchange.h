// A rank's end of its communicator's star: agreed all-gathers, faults, and the lifeline.
#ifndef SYMM_CORE_EXCHANGE_H_
#define SYMM_CORE_EXCHANGE_H_

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/connection.h"
#include "core/messages.h"
#include "core/star.h"

namespace symm {

class Exchange {
 public:
  // Called in the helper thread with the one fault that ends the communicator.
  using OnFault = std::function<void(const Failure&)>;

  // Connects to the star and asks to join. Throws PEER of rank 0 if nobody is there. `hub` is this
  // process's own for rank 0, null for others.
  static std::shared_ptr<Exchange> open(const StarAddress& star,
                                        const std::shared_ptr<StarHub>& hub, int rank,
                                        const std::string& host_id_of_hub, Deadline deadline);
  ~Exchange();

  // Returns once the hub has accepted, which comes before anything else. Throws the fault, PEER of
  // rank 0 or TIMEOUT.
  void wait_until_joined(Deadline deadline);

  // From now on, and for a fault that has come already.
  void set_on_fault(OnFault on_fault);

  struct Contribution {
    Failure failure;  // this rank cannot go on; the step then fails on every rank
    Bytes blob;
    std::shared_ptr<Fd> fd;
  };
  struct Gathered {
    std::vector<Bytes> blobs;  // by rank
    std::vector<Fd> fds;       // by rank; empty for ranks without one and ranks of this process
    bool fds_lost = false;     // this process had no room for them

    // Throws SYSTEM if they were lost: this rank's failure in the next step.
    void check_fds() const;
  };
  // Collective: the same kind on every rank, steps in the same order. All ranks return, or all
  // throw: the failure of the lowest rank that has one (not sticky, the star works on), or the
  // fault. After the deadline the hub is asked to end the step; only a hub that does not answer is
  // left alone.
  Gathered gather(const std::string& kind, Contribution contribution, Deadline deadline);

  // Called in the helper thread when a rank has said that the next step, or the one that this rank
  // is in, will fail: whoever waits for that rank elsewhere need not. Also for what has come
  // already. Null: nobody waits any more.
  using OnDoomed = std::function<void(const Failure&)>;
  void set_on_doomed(OnDoomed on_doomed);

  // The same, asked: whether waiting for other ranks elsewhere is pointless. Any thread.
  bool is_doomed() const;

  // Ends this rank's waits with a fault that came another way than through the star. Any thread.
  void end_with(const Failure& failure) { record_fault(shared_, failure); }

  // Tells every rank. Any thread, does not block.
  void send_fault(const Failure& failure);
  // The rank takes no further part. Any thread, does not block; once.
  void leave();
  // The hub, rank 0, has left cleanly: there will be no further step.
  bool hub_left() const;

 private:
  Exchange(int rank, std::shared_ptr<StarHub> hub);
  void start(Fd fd, const Join* join);

  // What the helper thread's callbacks hold: it outlives the Exchange by what is under way.
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    bool joined = false;
    bool hub_left = false;
    bool closed = false;
    std::optional<Failure> fault;
    std::optional<Failure> refused;
    std::optional<Result> result;
    std::vector<Fd> result_fds;
    std::optional<Failure> doomed;  // the step that has no result yet
    OnFault on_fault;
    OnDoomed on_doomed;
  };
  static void on_frame(const std::shared_ptr<Shared>& shared, Connection& connection,
                       const Frame& frame);
  static void record_fault(const std::shared_ptr<Shared>& shared, const Failure& failure);

  const int rank_;
  std::shared_ptr<Reactor> reactor_;
  std::shared_ptr<StarHub> hub_;
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::shared_ptr<Connection> connection_;  // touched in the helper thread only
  uint64_t step_ = 0;
  std::atomic<bool> left_{false};
};

}  // namespace symm

#endif  // SYMM_CORE_EXCHANGE_H_
