// Which GPU a rank is on, and what ranks must know of each other's.
#ifndef SYMM_CORE_CUDA_DEVICE_H_
#define SYMM_CORE_CUDA_DEVICE_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/cuda/context.h"
#include "core/cuda/domains.h"
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
  int32_t max_connections = 8;    // CUDA_DEVICE_MAX_CONNECTIONS, or the driver's own default
  uint64_t granularity = 0;       // of cuMemCreate
  std::vector<Uuid> unreachable;  // GPUs that its process sees, and that this one cannot access
  int32_t domain_ranks = 0;       // kDomainRanks, or 0
};
// A variable for tests: consecutive ranks, so many each, are to be taken for a peer domain.
constexpr char kDomainRanks[] = "SYMM_DOMAIN_RANKS";
GpuInfo describe_gpu(const Context& context, const Environment& environment);
Bytes encode(const GpuInfo& info);
GpuInfo decode_gpu_info(const Bytes& blob);

// What all ranks conclude from everyone's GPUs, alike.
struct Gpus {
  std::vector<GpuInfo> of_rank;
  Domains domains;
  Agreed agreed;             // of one domain; of several only the size and the GPUs' kinds count
  uint64_t granularity = 0;  // the greatest
  int least_capability = 0;  // 90 for 9.0
};
// Throws INVALID_ARGUMENT where ranks share a GPU and may not, with the table rank -> GPU; where a
// process has more ranks on a GPU than CUDA_DEVICE_MAX_CONNECTIONS allows to run at once; or where
// scratch_bytes is too small. UNSUPPORTED where one domain has too many ranks.
Gpus conclude(std::vector<GpuInfo> of_rank, const std::vector<RankInfo>& roster,
              const AgreedOptions& options);

}  // namespace symm::cuda

#endif  // SYMM_CORE_CUDA_DEVICE_H_
