// What a communicator's ranks run on: how they set up, share memory, reduce, and end.
//
// Comm has the membership, the faults and the order of calls; its backend has the device. There is
// one a communicator, for the CPU (core/cpu/backend.h) or for CUDA devices (core/cuda/backend.h).
#ifndef SYMM_CORE_BACKEND_H_
#define SYMM_CORE_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/call.h"
#include "core/deadline.h"
#include "core/messages.h"

namespace symm {

class Comm;
class JsonWriter;
class Window;

// What a caller of symm_window_register says about its memory.
struct CallersMemory {
  void* pointer = nullptr;
  size_t bytes = 0;
  bool has_fd = false;
  int fd = -1;
  size_t fd_offset = 0;
  bool nccl = false;  // an NCCL window too
};

// For symm_plan.
struct CallPlan {
  std::string algorithm;
  std::string reason;
  uint64_t blocks = 1;
  uint64_t threads = 1;
  struct Other {
    std::string algorithm;
    std::string why_not;
  };
  std::vector<Other> faster;  // algorithms that would be faster were it not for ...
};

// For symm_report.
struct AlgorithmRow {
  size_t up_to_bytes;  // inclusive; SIZE_MAX for the last
  std::string algorithm;
};

// What an operation belongs to, a communicator or a window. Asked for a reference only where the
// operation outlasts the call: an all-reduce on CPUs is too short to pay for one.
class Keepable {
 public:
  virtual std::shared_ptr<void> keep() = 0;

 protected:
  ~Keepable() = default;
};

class Backend {
 public:
  virtual ~Backend() = default;

  // Collective: agreed steps among the ranks, also where there is only one. Once, first.
  virtual void set_up(Deadline deadline) = 0;

  // Collective. `failure` is what is wrong with this rank's call; it is taken into the agreement.
  // `nccl`: an NCCL window too.
  virtual std::shared_ptr<Window> alloc_window(uint64_t number, size_t bytes, bool nccl,
                                               const Failure& failure, Deadline deadline) = 0;
  virtual std::shared_ptr<Window> register_window(uint64_t number, const CallersMemory& memory,
                                                  const Failure& failure, Deadline deadline) = 0;

  // Throws INVALID_ARGUMENT where it is not a stream that this backend can use.
  virtual void check_stream(void* stream) const = 0;
  // Collective; blocks, or enqueues on the stream. `owner` is what must stay while the call is part
  // of a graph. The caller has checked dtype, op, alignment and overlap.
  virtual void all_reduce(const Call& call, const void* input, void* output, void* stream,
                          Keepable& owner) = 0;
  virtual void barrier(void* stream, Keepable& owner) = 0;

  // A set-up call begins, which peers may see instead of what they wait for.
  virtual void begin_setup(const Call& call) = 0;
  // Ends every wait of this rank, now and later. Any thread, does not block.
  virtual void raise(const Failure& failure) = 0;
  // A fault that the backend itself knows of. Any thread.
  virtual std::optional<Failure> fault() const = 0;
  // The same, if finding out costs nothing: asked before every call.
  virtual std::optional<Failure> fault_before_call() const { return std::nullopt; }

  // Waits, for a bounded time, until what was enqueued has run: the process exits.
  virtual void finish() noexcept {}
  // This rank takes no further part; peers that still need it end with PEER.
  virtual void leave() = 0;
  virtual bool has_left(int rank) const = 0;
  // A handle was given up: `last` goes when enqueued work no longer needs it. Does not block.
  virtual void retire(std::shared_ptr<void> last) = 0;

  virtual CallPlan plan(const Call& call) const = 0;
  virtual std::vector<AlgorithmRow> table() const = 0;
  // Into the communicator's object of symm_report.
  virtual void describe(JsonWriter& json) const = 0;
  // How this rank reaches another, into that peer's object; true if it was said.
  virtual bool describe_peer(JsonWriter& json, int rank) const = 0;
  // A fault() that other ranks may not have found themselves, and that says whose it is.
  virtual std::optional<Failure> untold_fault() const { return std::nullopt; }
  // Once set up: the part of the ranks that this one is to have a communicator of its own with,
  // engaged on every rank or on none. use_domain() then gets that one; what it throws is agreed.
  struct InDomain {
    int number;
    bool shares_gpus;  // kBesideNccl
  };
  virtual std::optional<InDomain> domain() const { return std::nullopt; }
  virtual void use_domain(const std::shared_ptr<Comm>&) {}
  // The ncclComm_t inside. Throws UNSUPPORTED where there is none.
  virtual void* nccl() const = 0;
};

}  // namespace symm

#endif  // SYMM_CORE_BACKEND_H_
