// Which kernels an all-reduce on GPUs takes: a pure function of what the ranks have agreed on.
#ifndef SYMM_CORE_CUDA_PLAN_H_
#define SYMM_CORE_CUDA_PLAN_H_

#include <cstdint>

#include "core/call.h"
#include "kernels/cuda/abi.h"

namespace symm::cuda {

enum class Algorithm : uint8_t {
  kBarrier = 0,
  kLowLatency = 1,   // 8 data + 8 flag bytes a packet
  kPacked = 2,       // whole packets with a poison word; one grid
  kPackedRounds = 3, // the same in a bounded grid
  kTwoShot = 4,      // scatter to owners, owners reduce, fan out
};
const char* algorithm_name(Algorithm algorithm);

// Agreed at creation: the same on every rank, the least capable of them decides.
struct Agreed {
  int size = 1;                 // ranks
  int most_ranks_on_a_gpu = 1;
  int multiprocessors = 0;      // of the smallest GPU
  bool dependent_launch = false; // compute capability 9.0 and up on every rank
  bool sole = false;            // SYMM_COMM_SOLE
  uint64_t scratch_bytes = 0;
};

// Where things are in every rank's arena, of at most scratch_bytes (and the control block).
Layout layout_of(const Agreed& agreed);

// One kernel of the fatbin, by its place in kernel_names().
struct Launch {
  int kernel = 0;
  uint32_t blocks = 0;
  uint32_t threads = 0;
  uint32_t shared_bytes = 0;
};

struct Plan {
  Algorithm algorithm = Algorithm::kLowLatency;
  uint64_t part_count = 0;   // elements a launch takes at most; count == 0: one launch
  uint64_t parts = 1;
  const char* reason = "";   // why this one, for symm_plan
};

Plan plan(const Agreed& agreed, const Call& call);
// The launch for a part of `count` elements.
Launch launch(const Agreed& agreed, const Plan& plan, const Call& call, uint64_t count);

CallRecord record_of(const Call& call, Algorithm algorithm);
uint32_t hash_of(const CallRecord& record);

// Names in the fatbin; Launch::kernel is an index.
struct KernelNames {
  const char* const* names;
  int count;
};
KernelNames kernel_names();

}  // namespace symm::cuda

#endif  // SYMM_CORE_CUDA_PLAN_H_
