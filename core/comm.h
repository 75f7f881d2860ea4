// One rank's membership of a communicator.
//
// Collective set-up calls go through the exchange (agreed steps over the star), everything that
// needs memory or devices through the backend. A communicator of one rank has no exchange.
#ifndef SYMM_CORE_COMM_H_
#define SYMM_CORE_COMM_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/backend.h"
#include "core/call_lock.h"
#include "core/exchange.h"
#include "core/fault.h"
#include "core/messages.h"
#include "core/process.h"
#include "core/rendezvous.h"

namespace symm {

class JsonWriter;
class Window;

// symm_comm_options with the defaults filled in.
struct CommOptions {
  std::string name;
  AgreedOptions agreed;
  std::string nccl_path;  // "": one that is loaded, or the usual places
};

class Comm final : public ExitListener, public Keepable, public std::enable_shared_from_this<Comm> {
 public:
  // symm_comm_create. `failure` is what the boundary found wrong with this rank's arguments: it is
  // taken into the meeting, so that every rank fails.
  static std::shared_ptr<Comm> create(const std::string& address, int32_t rank, int32_t size,
                                      int32_t device, const CommOptions& options,
                                      const Failure& failure);
  ~Comm() override;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(roster_.size()); }
  int32_t device() const { return roster_[static_cast<size_t>(rank_)].device; }
  uint64_t generation() const { return generation_; }
  const CommOptions& options() const { return options_; }
  const std::vector<RankInfo>& roster() const { return roster_; }
  bool one_host() const { return one_host_; }
  const Backend& backend() const { return *backend_; }
  const std::string& id() const { return id_; }

  // Collective; null for SYMM_NO_COLOR. `failure` as above.
  std::shared_ptr<Comm> split(int32_t color, int32_t key, const CommOptions& options,
                              const Failure& failure) {
    return split(color, key, options, failure, set_up_deadline());
  }
  void barrier(void* stream);
  // `owner`: the window, if it is one's; else the communicator itself.
  void all_reduce(const Call& call, const void* input, void* output, void* stream, Keepable& owner);
  std::shared_ptr<Window> alloc_window(size_t bytes, bool nccl, const Failure& failure);
  std::shared_ptr<Window> register_window(const CallersMemory& memory, const Failure& failure);
  // The caller gave a handle up: the last of it goes once enqueued work is done with it.
  void retire(std::shared_ptr<void> last) { backend_->retire(std::move(last)); }

  void abort();
  // SYMM_OK or the sticky error. Any thread.
  Failure sticky() const;
  // What only this rank has found becomes every rank's. Any thread.
  void tell_untold() noexcept;
  void throw_if_failed() const;
  // UNSUPPORTED where ranks are on several hosts.
  void require_one_host(const char* what) const;

  std::shared_ptr<void> keep() override { return shared_from_this(); }
  void process_exits() noexcept override;

  // For its backend:
  Exchange::Gathered gather(const std::string& kind, Exchange::Contribution contribution,
                            Deadline deadline);
  // Whether the next step will fail, or the communicator has: waiting for other ranks elsewhere is
  // pointless. Any thread.
  bool is_doomed() const;
  // Agreement: throws on every rank what failed on any.
  void agree(const std::string& kind, const Failure& failure, Deadline deadline);
  void watch_peers(std::vector<Fd> pidfds);
  // Makes a fault known here and to every other rank; the first one stays.
  void fail(const Failure& failure);
  const FaultBox& fault_box() const { return fault_; }

 private:
  Comm(int rank, std::vector<RankInfo> roster, CommOptions options);
  // Joins the star and sets the engine up. `parent` is the communicator being split, or null;
  // `attendance` the line to the meeting, or null.
  void connect(const StarAddress& star, const std::shared_ptr<StarHub>& hub, Comm* parent,
               Attendance* attendance, Deadline deadline);
  std::shared_ptr<Comm> split(int32_t color, int32_t key, const CommOptions& options,
                              const Failure& failure, Deadline deadline);
  // After connect(): what the backend needs a communicator below this one for.
  void complete(Deadline deadline);
  void peer_process_ended(const std::string& process_id);
  void leave() noexcept;
  void on_star_fault(const Failure& failure);
  void end_child(const Failure& failure);

  Deadline set_up_deadline() const { return Deadline::after_ms(options_.agreed.timeout_ms); }
  // Every call that other ranks see goes through here: one at a time, none after a fault, and a
  // sticky error becomes the communicator's.
  template <class Operation>
  void run(Operation operation) {
    const CallLock lock(busy_);
    throw_if_failed();
    try {
      if (const auto fault = backend_->fault_before_call()) {
        throw Error(fault->status, fault->message, fault->rank);
      }
      operation();
    } catch (const Error& e) {
      if (!is_sticky(e.status())) throw;
      fail({e.status(), e.rank(), e.what()});
      // Another fault may have been the first, and is then the one that every later call reports.
      const Failure failure = fault_.get();
      throw Error(failure.status, failure.message, failure.rank);
    }
  }

  const int rank_;
  const std::vector<RankInfo> roster_;
  const CommOptions options_;
  const uint64_t generation_ = process_generation();
  bool one_host_ = true;
  std::string id_;  // random, the same on every rank; names shared mappings in this process

  FaultBox fault_;
  std::shared_ptr<Reactor> reactor_;
  std::shared_ptr<Exchange> exchange_;  // null for one rank
  const std::unique_ptr<Backend> backend_;
  struct Watched {
    Fd fd;
    std::string process_id;
  };
  std::shared_ptr<std::vector<Watched>> watched_;  // touched in the helper thread only
  std::atomic<bool> left_{false};

  // The exchange of the communicator that a split is making: a fault of this one, or a rank's word
  // that the split will fail, ends its waits too, since a rank that is lost before it has joined is
  // one the new star has never seen.
  std::mutex child_mutex_;
  std::weak_ptr<Exchange> child_;
  Failure child_end_;  // what ended it so; ranks are this communicator's

  std::atomic<uint32_t> busy_{0};  // the CallLock's
  uint64_t windows_made_ = 0;
};

}  // namespace symm

#endif  // SYMM_CORE_COMM_H_
