// All-reduces among peer domains of several ranks: within each domain by its own kernels, between
// the domains' first ranks by NCCL, and back within each domain.
//
// The way back is a sum of integers to which only the first rank gives anything but zeros: the bits
// that NCCL made arrive everywhere, the same in every domain.
#ifndef SYMM_CORE_CUDA_HIERARCHY_H_
#define SYMM_CORE_CUDA_HIERARCHY_H_

#include <memory>
#include <optional>
#include <vector>

#include "core/comm.h"
#include "core/cuda/domains.h"
#include "core/cuda/nccl_comm.h"

namespace symm::cuda {

class Hierarchy {
 public:
  // `domain` is the communicator of this rank's domain, `members` its ranks' numbers in the whole
  // one, and `leaders` the domains' first ranks', null on others. Throws as CUDA does.
  Hierarchy(std::shared_ptr<Comm> domain, std::vector<int> members,
            std::shared_ptr<NcclComm> leaders, const Context& context, const Stream& stream);

  ~Hierarchy();

  // Enqueues an all-reduce or a barrier. Throws, of what failed after something was enqueued,
  // errors that end the communicator only. The context is current.
  void enqueue(const Call& call, const void* input, void* output, CUstream stream, bool captured,
               Keepable& owner);

  // A failure in the numbers of the whole. Not explained: the domain was told of another one's, and
  // not whose it was; the whole is being told that.
  struct Found {
    Failure failure;
    bool explained = true;
  };
  std::optional<Found> fault() const;
  // The same, as far as it was found in the domain itself and not by NCCL.
  std::optional<Found> fault_within() const;
  // Of the leaders; see NcclComm::look().
  std::optional<Found> look(int32_t wait_timeout_ms, int left);
  // The whole has failed.
  void raise(const Failure& failure);

 private:
  Failure in_whole(Failure failure) const;
  Found found(const Failure& of_domain) const;
  template <class Part>
  void within(Part part) const;
  void there(const Call& call, const void* input, void* output, CUstream stream, Keepable& owner);
  void between(const Call& call, void* output, CUstream stream, bool captured);
  void back(const Call& call, void* output, CUstream stream, Keepable& owner);

  std::shared_ptr<Comm> domain_;
  const std::vector<int> members_;
  const std::shared_ptr<NcclComm> leaders_;
  std::shared_ptr<Mapping> zeros_;  // null on leaders
};

// Whether such a call may go that way at all: an average of averages is the average only of domains
// of one size, and of numbers that are not rounded in between to whole ones.
bool may_be_hierarchical(const Domains& domains, const Call& call);

}  // namespace symm::cuda

#endif  // SYMM_CORE_CUDA_HIERARCHY_H_
