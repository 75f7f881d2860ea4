#include "core/cuda/domains.h"

#include <algorithm>

#include "core/cuda/device.h"
#include "core/text.h"

namespace symm::cuda {

std::vector<int> Domains::members(int domain) const {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < of_rank.size(); ++rank) {
    if (of_rank[rank] == domain) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

std::string Domains::text() const {
  std::string list;
  for (int domain = 0; domain < count; ++domain) {
    list += (domain == 0 ? "" : " | ") + rank_list(members(domain));
  }
  return list;
}

std::string why_apart(const std::vector<GpuInfo>& of_rank, const std::vector<RankInfo>& roster,
                      int a, int b) {
  const auto i = static_cast<size_t>(a);
  const auto j = static_cast<size_t>(b);
  if (roster[i].host_id != roster[j].host_id) {
    return symm::text(
        "rank ", a, " is on ", roster[i].host_name, " and rank ", b, " on ", roster[j].host_name,
        roster[i].host_name == roster[j].host_name ? ", in network name spaces of their own" : "");
  }
  const int together = of_rank[i].domain_ranks;
  if (together > 0 && a / together != b / together) {
    return symm::text(kDomainRanks, "=", together, " keeps rank ", a, " and rank ", b, " apart");
  }
  // Either process may be the one that sees both GPUs.
  for (const auto& [from, to] : {std::pair(i, j), std::pair(j, i)}) {
    const auto& unreachable = of_rank[from].unreachable;
    if (std::find(unreachable.begin(), unreachable.end(), of_rank[to].uuid) == unreachable.end()) {
      continue;
    }
    return symm::text("rank ", from, "'s GPU ", of_rank[from].ordinal,
                      " cannot access the memory of rank ", to, "'s GPU ", of_rank[to].ordinal,
                      " (", uuid_text(of_rank[to].uuid),
                      "): there is no NVLink or PCIe peer access between them (nvidia-smi topo "
                      "-p2p rw)");
  }
  return "";
}

Domains find_domains(const std::vector<GpuInfo>& of_rank, const std::vector<RankInfo>& roster) {
  const int ranks = static_cast<int>(of_rank.size());
  Domains domains;
  domains.count = 0;
  domains.of_rank.resize(of_rank.size(), -1);
  // Reach need not be transitive: a rank joins the first domain all of whose ranks it reaches.
  for (int rank = 0; rank < ranks; ++rank) {
    int& mine = domains.of_rank[static_cast<size_t>(rank)];
    for (int domain = 0; domain < domains.count && mine < 0; ++domain) {
      bool reaches = true;
      for (int other = 0; other < rank && reaches; ++other) {
        if (domains.of_rank[static_cast<size_t>(other)] != domain) continue;
        const std::string why = why_apart(of_rank, roster, other, rank);
        if (domains.why.empty()) domains.why = why;
        reaches = why.empty();
      }
      if (reaches) mine = domain;
    }
    if (mine < 0) mine = domains.count++;
  }
  return domains;
}

}  // namespace symm::cuda
