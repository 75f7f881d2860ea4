// Ranks of a communicator of GPUs, all in this thread: what the kernels need, and nothing of core/.
#ifndef SYMM_TESTS_CUDA_WORLD_H_
#define SYMM_TESTS_CUDA_WORLD_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/cuda/plan.h"
#include "kernels/cuda/abi.h"
#include "tests/cuda/driver.h"

namespace symm::cuda::testing {

// GPUs of this machine that can reach each other, at most two; 0: none.
int usable_gpus();

struct WorldOptions {
  int size = 2;
  int gpus = 1;
  bool sole = false;
  bool dependent_launch = true;
  uint64_t scratch_bytes = 128u << 20;
  uint64_t timeout_ns = 5'000'000'000;
};

class World {
 public:
  explicit World(const WorldOptions& options);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  const Agreed& agreed() const { return agreed_; }
  const Layout& layout() const { return layout_; }
  int size() const { return agreed_.size; }
  CUstream stream(int rank) const { return ranks_[rank].stream; }
  CUstream side_stream(int rank) const { return ranks_[rank].side_stream; }
  CUdeviceptr arena(int rank) const { return ranks_[rank].arena; }
  const ErrorRecord& error(int rank) const { return *ranks_[rank].error; }
  void use(int rank) const;  // makes the rank's GPU current

  CUdeviceptr alloc(int rank, size_t bytes);  // until this world ends

  // Enqueues the call on the rank's stream, all its parts.
  void enqueue(int rank, const Plan& plan, const Call& call, CUdeviceptr input, CUdeviceptr output);
  // Another grid than the plan's, for all operations to come; 0 threads: the plan's again.
  void force(const Launch& grid) { forced_ = grid; }
  void synchronize();  // all ranks' streams

  void set_epoch(uint32_t epoch);  // of all ranks
  uint32_t epoch(int rank);
  void store(int rank, uint64_t offset, uint32_t word);  // into an arena, from another stream
  void reset();                                          // as after creation

 private:
  struct Rank {
    int gpu = 0;
    CUstream stream = nullptr;
    CUstream side_stream = nullptr;
    CUdeviceptr arena = 0;
    ErrorRecord* error = nullptr;
    CUdeviceptr error_on_device = 0;
    uint32_t* pinned = nullptr;
    std::vector<CUdeviceptr> allocations;
  };

  Agreed agreed_;
  Layout layout_;
  uint64_t timeout_ns_;
  std::vector<Rank> ranks_;
  Launch forced_{0, 0, 0, 0, 0};
};

}  // namespace symm::cuda::testing

#endif  // SYMM_TESTS_CUDA_WORLD_H_
