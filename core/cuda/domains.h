// Which ranks' GPUs reach each other's memory, and which need NCCL between them.
#ifndef SYMM_CORE_CUDA_DOMAINS_H_
#define SYMM_CORE_CUDA_DOMAINS_H_

#include <string>
#include <vector>

#include "core/messages.h"

namespace symm::cuda {

struct GpuInfo;

// Peer domains: ranks that all reach each other. The same on every rank, as it is concluded from
// what all of them said.
struct Domains {
  std::vector<int> of_rank;  // numbered from 0, in the order of their lowest ranks
  int count = 1;
  std::string why;  // there is more than one: of the first two ranks that are apart

  std::vector<int> members(int domain) const;  // ascending
  // "rank 0 | ranks 1 and 2".
  std::string text() const;
};
Domains find_domains(const std::vector<GpuInfo>& of_rank, const std::vector<RankInfo>& roster);

// Why the GPUs of two ranks do not reach each other; "" if they do, as far as is known before
// memory is mapped.
std::string why_apart(const std::vector<GpuInfo>& of_rank, const std::vector<RankInfo>& roster,
                      int a, int b);

}  // namespace symm::cuda

#endif  // SYMM_CORE_CUDA_DOMAINS_H_
