// Which kernels an all-reduce on GPUs takes: a pure function of what the ranks have agreed on.
#ifndef SYMM_CORE_CUDA_PLAN_H_
#define SYMM_CORE_CUDA_PLAN_H_

#include <cstdint>

#include "core/call.h"
#include "kernels/cuda/abi.h"

namespace symm::cuda {

enum class Algorithm : uint8_t {
  kBarrier = 0,
  kLowLatency = 1,    // 8 data + 8 flag bytes a packet
  kPacked = 2,        // whole packets with a poison word; one grid, a packet a thread
  kPackedRounds = 3,  // the same in a bounded grid
  kTwoShot = 4,       // scatter to owners, owners reduce, fan out; a bounded grid
  kCopy = 5,          // one rank
};
const char* algorithm_name(Algorithm algorithm);  // "low_latency"

// Agreed at creation: the same on every rank, the least capable of them decides.
struct Agreed {
  int size = 1;  // ranks
  int most_ranks_on_a_gpu = 1;
  int multiprocessors = 0;        // of the smallest GPU
  bool dependent_launch = false;  // compute capability 9.0 and up on every rank
  bool sole = false;              // SYMM_COMM_SOLE
  bool beside_nccl = false;       // kBesideNccl
  uint64_t scratch_bytes = 0;     // at least least_scratch(size)
};

// With less no message fits at all.
uint64_t least_scratch(int size);
// Where things are in every rank's arena; bytes <= scratch_bytes.
Layout layout_of(const Agreed& agreed);

// Grid and block of one kernel, by its place in kernel_names().
struct Launch {
  int kernel = 0;
  uint32_t blocks = 1;
  uint32_t threads = 32;
  uint32_t shared_bytes = 0;  // dynamic; at most 48 KiB
  uint32_t flags = 0;         // for Params::flags
};

struct Plan {
  Algorithm algorithm = Algorithm::kLowLatency;
  uint64_t part_count = 0;  // elements a launch takes at most; count == 0: one launch of 0
  uint64_t parts = 1;       // launches, each an epoch of its own
  const char* reason = "";  // why this one, for symm_plan
  // A faster one that may not be taken, for symm_plan; the same as `algorithm` if there is none.
  Algorithm faster = Algorithm::kLowLatency;
  const char* why_not = "";
};

Plan plan(const Agreed& agreed, const Call& call);
// The launch for a part of `count` elements. Any rank may launch what this gives for its own
// multiprocessors: slots belong to packets, not to blocks.
Launch launch(const Agreed& agreed, const Plan& plan, const Call& call, uint64_t count);

CallRecord record_of(const Call& call, Algorithm algorithm);
Call call_of(const CallRecord& record);  // for messages about a peer's call
uint32_t hash_of(const CallRecord& record);

// A kernel of this build: its name, and which of images() holds it (kernels/cuda/images.h).
struct Kernel {
  const char* name;
  int image;
  int world;  // the size it is made for; 0: any
};
struct Kernels {
  const Kernel* kernels;
  int count;  // 0 in a build without a CUDA compiler
};
Kernels kernels();  // Launch::kernel is an index
// Whether a communicator of this size may launch it: the others need not be loaded.
bool needed(const Kernel& kernel, int size);

}  // namespace symm::cuda

#endif  // SYMM_CORE_CUDA_PLAN_H_
