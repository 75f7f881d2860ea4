// Which GPU a rank is on, and what ranks must know of each other's.
#ifndef SYMM_CORE_CUDA_DEVICE_H_
#define SYMM_CORE_CUDA_DEVICE_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/cuda/context.h"
#include "core/cuda/plan.h"
#include "core/environment.h"
#include "core/messages.h"

namespace symm::cuda {

// See resolve_device() in support.h.
int choose_device(int32_t device, const Environment& environment);

using Uuid = std::array<char, 16>;
Uuid uuid_of(CUdevice device);
// "GPU-9b3e...", as nvidia-smi writes it.
std::string uuid_text(const Uuid& uuid);

// What a rank says of its GPU at creation.
struct GpuInfo {
  Uuid uuid{};
  std::string name;
  int32_t ordinal = 0;     // in its own process
  int32_t capability = 0;  // 90 for 9.0
  int32_t multiprocessors = 0;
  int32_t max_connections = 8;  // CUDA_DEVICE_MAX_CONNECTIONS, or the driver's own default
  uint64_t granularity = 0;     // of cuMemCreate
};
GpuInfo describe_gpu(const Context& context, const Environment& environment);
Bytes encode(const GpuInfo& info);
GpuInfo decode_gpu_info(const Bytes& blob);

// What all ranks conclude from everyone's GPUs, alike.
struct Gpus {
  std::vector<GpuInfo> of_rank;
  Agreed agreed;
  uint64_t granularity = 0;  // the greatest
};
// Throws INVALID_ARGUMENT where ranks share a GPU and may not, with the table rank -> GPU; where a
// process has more ranks on a GPU than CUDA_DEVICE_MAX_CONNECTIONS allows to run at once; or where
// scratch_bytes is too small.
Gpus conclude(std::vector<GpuInfo> of_rank, const std::vector<RankInfo>& roster,
              const AgreedOptions& options);

// Throws UNSUPPORTED where this process sees that GPU and knows that it cannot reach it.
void check_peer(const Context& own, const GpuInfo& peer, int rank);
// The ordinal here of a GPU, or -1 where this process does not see it.
int find_gpu(const Uuid& uuid);

}  // namespace symm::cuda

#endif  // SYMM_CORE_CUDA_DEVICE_H_
