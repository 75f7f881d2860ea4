// The backend of ranks on GPUs.
//
// Ranks that all reach each other's memory, one peer domain, use the kernels of kernels/cuda. Where
// they do not (several hosts, no peer access), NCCL does what is to be done among all of them, and
// there are no windows.
#ifndef SYMM_CORE_CUDA_BACKEND_H_
#define SYMM_CORE_CUDA_BACKEND_H_

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/backend.h"
#include "core/comm.h"
#include "core/cuda/arena.h"
#include "core/cuda/device.h"
#include "core/cuda/functions.h"
#include "core/cuda/hierarchy.h"
#include "core/cuda/nccl_comm.h"
#include "core/cuda/order.h"
#include "core/cuda/reaper.h"
#include "core/cuda/slices.h"
#include "core/memory.h"

namespace symm::cuda {

class CudaBackend : public Backend {
 public:
  explicit CudaBackend(Comm& comm);
  ~CudaBackend() override;

  void set_up(Deadline deadline) override;
  std::shared_ptr<Window> alloc_window(uint64_t number, size_t bytes, bool nccl,
                                       const Failure& failure, Deadline deadline) override;
  std::shared_ptr<Window> register_window(uint64_t number, const CallersMemory& memory,
                                          const Failure& failure, Deadline deadline) override;
  void check_stream(void*) const override {}  // begin() does, where it costs least
  void all_reduce(const Call& call, const void* input, void* output, void* stream,
                  Keepable& owner) override;
  void barrier(void* stream, Keepable& owner) override;
  void begin_setup(const Call&) override {}
  void raise(const Failure& failure) override;
  std::optional<Failure> fault() const override;
  std::optional<Failure> fault_before_call() const override;
  std::optional<Failure> untold_fault() const override;
  void finish() noexcept override;
  void leave() override;
  bool has_left(int rank) const override;
  void retire(std::shared_ptr<void> last) override;
  CallPlan plan(const Call& call) const override;
  std::vector<AlgorithmRow> table() const override;
  void describe(JsonWriter& json) const override;
  bool describe_peer(JsonWriter& json, int rank) const override;
  std::optional<InDomain> domain() const override;
  void use_domain(const std::shared_ptr<Comm>& domain) override;
  void* nccl() const override;

 private:
  class Watch;
  static constexpr char kNccl[] = "nccl";
  static constexpr char kHierarchical[] = "hierarchical";
  // Bytes. Below, latency decides, and NCCL's grows with the ranks it has; above, every GPU's way
  // to the network is needed. Reckoned from NCCL's latencies within and between hosts, not
  // measured.
  static constexpr size_t kMostHierarchical = 32 << 10;
  // Words that ranks of several processes share on the host, to tell leaving from dying.
  struct Leavers {
    std::atomic<uint32_t> left[symm::kMostRanks];
  };
  // Windows that this rank has freed and not yet told; outlives the backend by its windows.
  struct Freed {
    std::mutex mutex;
    std::vector<uint64_t> windows;
  };
  struct SliceKeeper;
  using Mappings = std::vector<std::shared_ptr<Mapping>>;  // by rank

  // Not one peer domain: NCCL does everything.
  bool apart() const { return gpus_.domains.count > 1; }
  // Steps of creation. What each needs of the one before is in members.
  void set_up_domain(const Failure& failure, std::vector<Fd> pidfds, Deadline deadline);
  void set_up_apart(const Failure& failure, std::vector<Fd> pidfds, Deadline deadline);
  void set_up_nccl(Deadline deadline);
  // Peer domains of several ranks each: see hierarchy.h. Whether a call goes that way is the same
  // on every rank.
  bool has_hierarchy() const { return apart() && gpus_.domains.count < comm_.size(); }
  int own_domain() const;
  bool leads() const;
  void check_gpus_for_nccl(const std::string& why) const;
  [[noreturn]] void refuse_flat(const Call& call) const;
  bool goes_hierarchical(const Call& call) const;
  bool has_flat_nccl() const { return gpus_.agreed.most_ranks_on_a_gpu == 1; }
  std::shared_ptr<Hierarchy> hierarchy() const;
  void begin_watch(std::vector<Fd> pidfds);
  void share_leavers(Failure failure, Deadline deadline);
  int someone_left() const;
  std::shared_ptr<NcclComm> nccl_comm() const;
  // Collective. What keeps an NCCL window over this rank's memory; null where there are none.
  std::shared_ptr<void> make_nccl_window(const char* kind, uint64_t number, void* pointer,
                                         size_t bytes, std::shared_ptr<void> keep,
                                         Deadline deadline);
  // 1 + the number of a live window of symm_window_register over that very memory, or 0.
  uint64_t nccl_window_over(void* pointer, size_t bytes, CUmemGenericAllocationHandle handle) const;
  // Collective. `same_as` has what every rank's nccl_window_over() said.
  std::shared_ptr<void> register_nccl_window(uint64_t number, void* pointer, size_t bytes,
                                             CUmemGenericAllocationHandle handle,
                                             const std::vector<uint64_t>& same_as,
                                             Deadline deadline);
  void require_one_domain() const;
  void describe_nccl(JsonWriter& json) const;

  void enqueue(const Call& call, const void* input, void* output, CUstream stream, Keepable& owner);
  void enqueue_nccl(const Call& call, const void* input, void* output, CUstream stream,
                    Keepable& owner);
  void launch(const Call& call, const std::byte* input, std::byte* output, CUstream stream);
  // The failure that the error record tells of; `explained` if it names whose fault it is.
  Failure reported(bool* explained) const;
  Failure explained(const Failure& failure) const;

  // Memory of this rank that others map, zeroed, known by `key` in this process.
  std::shared_ptr<Mapping> make_shared_memory(const std::string& key, size_t bytes,
                                              std::shared_ptr<Fd>* fd);
  Mappings map_all(const std::string& key, size_t bytes, std::shared_ptr<Mapping> own,
                   const std::vector<Fd>& fds);
  std::shared_ptr<Window> make_window(uint64_t number, size_t bytes, const Mappings& mappings,
                                      size_t offset, std::shared_ptr<void> keeper);
  std::shared_ptr<Window> place_window(uint64_t number, size_t bytes, Deadline deadline);
  Mappings make_slab(uint64_t window, Deadline deadline);
  std::vector<uint64_t> untold() const;
  // Everyone's freed windows are known everywhere now.
  void hear_freed(const std::vector<std::vector<uint64_t>>& of_rank);

  Comm& comm_;
  std::shared_ptr<const Context> context_;
  std::shared_ptr<Reaper> reaper_;
  Gpus gpus_;
  std::unique_ptr<Arena> arena_;          // null for one rank
  std::unique_ptr<Functions> functions_;  // null for one rank
  std::unique_ptr<Stream> stream_;        // for set-up
  std::unique_ptr<Order> order_;
  std::shared_ptr<symm::Mapping> leavers_;
  std::shared_ptr<Watch> watch_;
  Params params_{};  // what is the same in every launch

  mutable std::mutex nccl_mutex_;
  std::shared_ptr<NcclComm> nccl_;     // of all ranks; null unless needed or asked for
  std::shared_ptr<NcclComm> leaders_;  // of the domains' first ranks; null on others
  std::shared_ptr<Hierarchy> hierarchy_;
  int nccl_version_ = 0;
  std::string no_nccl_windows_;  // why the last one that was asked for is none
  // NCCL's kernels for windows start beside a kernel of ours that lets its successor start early,
  // and some versions' do not wait for it: something else is enqueued in between.
  bool keeps_nccl_off_ = false;
  // Registered memory that is an NCCL window: NCCL does not stand a second one over it.
  struct NcclMemory {
    void* pointer;
    size_t bytes;
    CUmemGenericAllocationHandle handle;  // other memory may come to the same address
    uint64_t window;                      // the number of the first that asked for it
    std::weak_ptr<void> registered;
  };
  std::vector<NcclMemory> nccl_memory_;

  std::unique_ptr<Slices> slices_;
  std::map<uint64_t, Mappings> slabs_;
  const std::shared_ptr<Freed> freed_ = std::make_shared<Freed>();
};

}  // namespace symm::cuda

#endif  // SYMM_CORE_CUDA_BACKEND_H_
