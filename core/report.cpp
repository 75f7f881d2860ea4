#include "core/report.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

#include "core/cuda/support.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/nccl/library.h"
#include "core/text.h"
#include "kernels/cpu/reduce.h"

namespace symm {
namespace {

constexpr int kSchema = 1;

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const size_t colon = line.find(':');
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      return line.substr(std::min(colon + 2, line.size()));
    }
  }
  return "";
}

void library(JsonWriter& json) {
  json.key("library").begin_object();
  json.key("version").string(library_version());
  json.key("protocol_min").number(kProtocolMin);
  json.key("protocol_max").number(kProtocolMax);
  json.end_object();
}

void process(JsonWriter& json) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  json.key("process").begin_object();
  json.key("pid").number(getpid());
  json.key("uid").number(geteuid());
  json.key("open_files_limit").number(static_cast<uint64_t>(files.rlim_cur));
  json.end_object();
}

void machine(JsonWriter& json, bool may_start_cuda, bool may_load_nccl) {
  utsname kernel{};
  uname(&kernel);
  cpu_set_t mask;
  CPU_ZERO(&mask);
  const bool known = sched_getaffinity(0, sizeof mask, &mask) == 0;
  json.key("machine").begin_object();
  json.key("host").string(kernel.nodename);
  json.key("kernel").string(kernel.release);
  json.key("architecture").string(kernel.machine);
  json.key("host_id").string(host_identity());
  json.key("cpu").string(cpu_name());
  json.key("cpu_level").string(cpu::level_name(cpu::best_level()));
  json.key("cpus").number(sysconf(_SC_NPROCESSORS_ONLN));
  json.key("affinity_cpus").number(known ? CPU_COUNT(&mask) : 0);
  json.key("page_bytes").number(page_size());
  json.key("memory_bytes").number(static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * page_size());
  json.key("interfaces").begin_array();
  for (const std::string& address : interface_addresses()) json.string(address);
  json.end_array();
  json.end_object();
  json.key("cuda");
  cuda::describe(json, may_start_cuda);
  json.key("nccl");
  nccl::describe(json, may_load_nccl);
}

std::string device_text(int32_t device) {
  return device == SYMM_CPU ? "cpu" : text("cuda:", device);
}

// How this rank reaches another, and why not better.
void peer(JsonWriter& json, const Comm& comm, int rank) {
  const RankInfo& mine = comm.roster()[static_cast<size_t>(comm.rank())];
  const RankInfo& theirs = comm.roster()[static_cast<size_t>(rank)];
  json.begin_object();
  json.key("rank").number(rank);
  json.key("host").string(theirs.host_name);
  json.key("pid").number(theirs.pid);
  json.key("device").string(device_text(theirs.device));
  if (rank == comm.rank()) {
    json.key("path").string("self");
  } else if (comm.backend().describe_peer(json, rank)) {
    // Said.
  } else if (theirs.process_id == mine.process_id) {
    json.key("path").string("same process");
  } else if (theirs.host_id == mine.host_id) {
    json.key("path").string("shared memory");
  } else {
    json.key("path").string("sockets");
    json.key("why_not_better")
        .string("it is on another host or in another network name space: memory cannot be shared");
  }
  json.end_object();
}

void communicator(JsonWriter& json, const Comm& comm) {
  const CommOptions& options = comm.options();
  json.key("communicator").begin_object();
  json.key("name").string(options.name);
  json.key("rank").number(comm.rank());
  json.key("size").number(comm.size());
  json.key("device").string(device_text(comm.device()));
  json.key("scratch_bytes").number(options.agreed.scratch_bytes);
  json.key("timeout_ms").number(options.agreed.timeout_ms);
  json.key("wait_timeout_ms").number(options.agreed.wait_timeout_ms);
  json.key("flags").number(options.agreed.flags);
  json.key("one_host").boolean(comm.one_host());
  comm.backend().describe(json);

  const Failure failure = comm.sticky();
  json.key("error");
  if (failure.status == SYMM_OK) {
    json.null();
  } else {
    json.begin_object();
    json.key("status").string(status_name(failure.status));
    json.key("rank").number(failure.rank);
    json.key("message").string(failure.message);
    json.end_object();
  }

  json.key("peers").begin_array();
  for (int rank = 0; rank < comm.size(); ++rank) peer(json, comm, rank);
  json.end_array();

  json.key("algorithms").begin_array();
  for (const AlgorithmRow& row : comm.backend().table()) {
    json.begin_object();
    json.key("up_to_bytes");
    if (row.up_to_bytes == SIZE_MAX) {
      json.null();
    } else {
      json.number(row.up_to_bytes);
    }
    json.key("algorithm").string(row.algorithm);
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

}  // namespace

std::string report(const Comm* comm) {
  JsonWriter json;
  json.begin_object();
  json.key("schema").number(kSchema);
  library(json);
  process(json);
  // Of a communicator that loaded none there is nothing to say, and which copy a process has is
  // then still open.
  machine(json, comm == nullptr || comm->device() != SYMM_CPU, comm == nullptr);
  if (comm != nullptr) communicator(json, *comm);
  json.end_object();
  return json.take();
}

std::string plan(const Comm& comm, const Call& call) {
  const CallPlan plan = comm.backend().plan(call);
  JsonWriter json;
  json.begin_object();
  json.key("algorithm").string(plan.algorithm);
  // Of the grid on a GPU; a CPU rank's share of the work is its calling thread.
  json.key("blocks").number(plan.blocks);
  json.key("threads").number(plan.threads);
  json.key("reason").string(plan.reason);
  json.key("faster").begin_array();
  for (const auto& other : plan.faster) {
    json.begin_object();
    json.key("algorithm").string(other.algorithm);
    json.key("why_not").string(other.why_not);
    json.end_object();
  }
  json.end_array();
  json.end_object();
  return json.take();
}

}  // namespace symm
