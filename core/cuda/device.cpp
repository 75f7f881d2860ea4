#include "core/cuda/device.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>

#include "core/cuda/memory.h"
#include "core/digest.h"
#include "core/launcher.h"
#include "core/wire.h"

namespace symm::cuda {
namespace {

// The driver's own default of hardware queues.
constexpr int kDefaultConnections = 8;
constexpr int kMostGpus = 256;  // that one process sees

int gpu_count() {
  int count = 0;
  SYMM_CUDA_CHECK(cuDeviceGetCount, (&count));
  if (count == 0) {
    throw Error(SYMM_UNSUPPORTED,
                "no GPU is visible to this process; look at nvidia-smi and CUDA_VISIBLE_DEVICES, "
                "or use SYMM_CPU");
  }
  return count;
}

// The CUDA runtime's current device is that of the thread's current context; of a thread that has
// none it is GPU 0.
int current_gpu() {
  CUcontext context = nullptr;
  SYMM_CUDA_CHECK(cuCtxGetCurrent, (&context));
  if (context == nullptr) return 0;
  CUdevice device = 0;
  SYMM_CUDA_CHECK(cuCtxGetDevice, (&device));
  return device;
}

int local_gpu(int count, const Environment& environment) {
  if (count == 1) return 0;
  const int local_rank = launcher_local_rank(environment);
  if (local_rank < 0) {
    throw Error(SYMM_INVALID_ARGUMENT,
                text("device is SYMM_LOCAL_GPU, ", count,
                     " GPUs are visible and no launcher says which is this rank's (LOCAL_RANK and "
                     "the like); pass an ordinal, or set CUDA_VISIBLE_DEVICES for each rank"));
  }
  if (local_rank >= count) {
    throw Error(
        SYMM_INVALID_ARGUMENT,
        text("device is SYMM_LOCAL_GPU and the local rank is ", local_rank, ", but only ", count,
             " GPUs are visible; start as many ranks a host as it has GPUs, or pass "
             "an ordinal and SYMM_COMM_SHARE_GPU"));
  }
  return local_rank;
}

int connections(const Environment& environment) {
  const auto value = environment("CUDA_DEVICE_MAX_CONNECTIONS");
  int number = 0;
  if (!value) return kDefaultConnections;
  const char* end = value->data() + value->size();
  if (std::from_chars(value->data(), end, number).ec != std::errc() || number < 1) {
    return kDefaultConnections;
  }
  return std::min(number, 32);
}

// The GPUs of this process whose memory this one cannot access.
std::vector<Uuid> unreachable_from(const Context& context) {
  std::vector<Uuid> uuids;
  for (int ordinal = 0; ordinal < std::min(gpu_count(), kMostGpus); ++ordinal) {
    if (ordinal == context.ordinal()) continue;
    CUdevice device = 0;
    int can = 0;
    SYMM_CUDA_CHECK(cuDeviceGet, (&device, ordinal));
    SYMM_CUDA_CHECK(cuDeviceCanAccessPeer, (&can, context.device(), device));
    if (can == 0) uuids.push_back(uuid_of(device));
  }
  return uuids;
}

int32_t domain_ranks(const Environment& environment) {
  const auto value = environment(kDomainRanks);
  if (!value || value->empty()) return 0;
  int32_t number = 0;
  const char* end = value->data() + value->size();
  const auto read = std::from_chars(value->data(), end, number);
  if (read.ec == std::errc() && read.ptr == end && number > 0) return number;
  throw Error(SYMM_INVALID_ARGUMENT,
              text(kDomainRanks, " is \"", *value,
                   "\"; it takes a number of ranks above 0, and is for tests: unset it"));
}

Uuid read_uuid(Reader* r) {
  Uuid uuid;
  const std::string bytes = r->string(uuid.size());
  if (bytes.size() != uuid.size()) throw WireError("a GPU's UUID of another length");
  std::copy(bytes.begin(), bytes.end(), uuid.begin());
  return uuid;
}

// "rank 0 -> GPU 0 of host a (GPU-..., NVIDIA H200), rank 1 -> ...".
std::string table_text(const std::vector<GpuInfo>& of_rank, const std::vector<RankInfo>& roster) {
  constexpr size_t kMostRows = 16;
  std::string table;
  for (size_t rank = 0; rank < of_rank.size() && rank < kMostRows; ++rank) {
    table += text(rank == 0 ? "" : ", ", "rank ", rank, " -> GPU ", of_rank[rank].ordinal, " of ",
                  roster[rank].host_name, " pid ", roster[rank].pid, " (",
                  uuid_text(of_rank[rank].uuid), ")");
  }
  if (of_rank.size() > kMostRows) table += text(", ... (", of_rank.size(), " ranks)");
  return table;
}

}  // namespace

int choose_device(int32_t device, const Environment& environment) {
  try {
    driver();
  } catch (const Error& e) {
    throw Error(e.status(),
                text("device ", device, " is a GPU, and CUDA is not there: ", e.what()));
  }
  const int count = gpu_count();
  int ordinal = device;
  if (device == SYMM_LOCAL_GPU) ordinal = local_gpu(count, environment);
  if (device == SYMM_CURRENT_GPU) ordinal = current_gpu();
  if (ordinal < 0 || ordinal >= count) {
    throw Error(SYMM_INVALID_ARGUMENT, text("device ", ordinal, " does not exist: ", count,
                                            count == 1 ? " GPU is" : " GPUs are",
                                            " visible to this process, numbered from 0"));
  }
  CUdevice handle = 0;
  SYMM_CUDA_CHECK(cuDeviceGet, (&handle, ordinal));
  const auto has = [&](CUdevice_attribute attribute) {
    int value = 0;
    SYMM_CUDA_CHECK(cuDeviceGetAttribute, (&value, attribute, handle));
    return value != 0;
  };
  if (has(CU_DEVICE_ATTRIBUTE_INTEGRATED)) {
    throw Error(SYMM_UNSUPPORTED, text("device ", ordinal,
                                       " is an integrated GPU, whose memory other processes "
                                       "cannot map; use SYMM_CPU"));
  }
  if (!has(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) ||
      !has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)) {
    throw Error(SYMM_UNSUPPORTED, text("device ", ordinal,
                                       " cannot share memory by file descriptors (cuMemCreate "
                                       "with CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR); use "
                                       "SYMM_CPU"));
  }
  return ordinal;
}

Uuid uuid_of(CUdevice device) {
  CUuuid uuid{};
  SYMM_CUDA_CHECK(cuDeviceGetUuid, (&uuid, device));
  Uuid bytes;
  std::copy(std::begin(uuid.bytes), std::end(uuid.bytes), bytes.begin());
  return bytes;
}

std::string uuid_text(const Uuid& uuid) {
  const std::string digits = hex({uuid.data(), uuid.size()});
  return text("GPU-", digits.substr(0, 8), '-', digits.substr(8, 4), '-', digits.substr(12, 4), '-',
              digits.substr(16, 4), '-', digits.substr(20));
}

GpuInfo describe_gpu(const Context& context, const Environment& environment) {
  GpuInfo info;
  info.uuid = uuid_of(context.device());
  char name[128] = "";
  SYMM_CUDA_CHECK(cuDeviceGetName, (name, sizeof name - 1, context.device()));
  info.name = name;
  info.ordinal = context.ordinal();
  info.capability = context.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
                    context.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  info.multiprocessors = context.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  info.max_connections = connections(environment);
  info.granularity = granularity_on(context.ordinal());
  info.unreachable = unreachable_from(context);
  info.domain_ranks = domain_ranks(environment);
  return info;
}

Bytes encode(const GpuInfo& info) {
  Writer w;
  w.string(std::string(info.uuid.begin(), info.uuid.end()));
  w.string(info.name);
  w.i32(info.ordinal);
  w.i32(info.capability);
  w.i32(info.multiprocessors);
  w.i32(info.max_connections);
  w.u64(info.granularity);
  w.u32(static_cast<uint32_t>(info.unreachable.size()));
  for (const Uuid& uuid : info.unreachable) w.string(std::string(uuid.begin(), uuid.end()));
  w.i32(info.domain_ranks);
  return w.take();
}

GpuInfo decode_gpu_info(const Bytes& blob) {
  Reader r(blob);
  GpuInfo info;
  info.uuid = read_uuid(&r);
  info.name = r.string(kMostText);
  info.ordinal = r.i32();
  info.capability = r.i32();
  info.multiprocessors = r.i32();
  info.max_connections = r.i32();
  info.granularity = r.u64();
  const uint32_t unreachable = r.u32();
  if (unreachable > kMostGpus) throw WireError("too many GPUs");
  for (uint32_t i = 0; i < unreachable; ++i) info.unreachable.push_back(read_uuid(&r));
  info.domain_ranks = r.i32();
  r.end();
  return info;
}

Gpus conclude(std::vector<GpuInfo> of_rank, const std::vector<RankInfo>& roster,
              const AgreedOptions& options) {
  Gpus gpus;
  gpus.of_rank = std::move(of_rank);
  Agreed& agreed = gpus.agreed;
  agreed.size = static_cast<int>(gpus.of_rank.size());
  for (size_t rank = 1; rank < gpus.of_rank.size(); ++rank) {
    const int32_t theirs = gpus.of_rank[rank].domain_ranks;
    const int32_t first = gpus.of_rank[0].domain_ranks;
    if (theirs == first) continue;
    throw Error(SYMM_INVALID_ARGUMENT,
                text(kDomainRanks, " differs: rank ", rank, " has ", theirs, ", rank 0 ", first,
                     " (0: it is not set); it must be the same on every rank"),
                static_cast<int>(rank));
  }
  gpus.domains = find_domains(gpus.of_rank, roster);
  if (gpus.domains.count == 1 && agreed.size > kMostRanks) {
    throw Error(SYMM_UNSUPPORTED,
                text(agreed.size, " ranks are more than the ", kMostRanks,
                     " that a communicator of GPUs of one host can have; split it"));
  }
  std::map<Uuid, std::vector<size_t>> on_gpu;
  std::map<std::pair<Uuid, std::string>, int> of_process;
  agreed.multiprocessors = gpus.of_rank.front().multiprocessors;
  agreed.dependent_launch = true;
  for (size_t rank = 0; rank < gpus.of_rank.size(); ++rank) {
    const GpuInfo& info = gpus.of_rank[rank];
    auto& others = on_gpu[info.uuid];
    others.push_back(rank);
    agreed.most_ranks_on_a_gpu =
        std::max(agreed.most_ranks_on_a_gpu, static_cast<int>(others.size()));
    agreed.multiprocessors = std::min(agreed.multiprocessors, info.multiprocessors);
    agreed.dependent_launch = agreed.dependent_launch && info.capability >= 90;
    gpus.granularity = std::max(gpus.granularity, info.granularity);
    if (rank == 0 || info.capability < gpus.least_capability) {
      gpus.least_capability = info.capability;
    }
    if (others.size() > 1 && (options.flags & SYMM_COMM_SHARE_GPU) == 0) {
      throw Error(SYMM_INVALID_ARGUMENT,
                  text("ranks ", others[0], " and ", rank,
                       " are on one GPU: ", table_text(gpus.of_rank, roster),
                       ". Give each rank a GPU of its own: SYMM_LOCAL_GPU under a launcher, "
                       "SYMM_CURRENT_GPU after cudaSetDevice, an ordinal, or CUDA_VISIBLE_DEVICES; "
                       "or set SYMM_COMM_SHARE_GPU"),
                  static_cast<int>(rank));
    }
    // A kernel that waits for a peer's holds its hardware queue; the peer's must have another.
    const int ranks = ++of_process[{info.uuid, roster[rank].process_id}];
    if (ranks > info.max_connections) {
      throw Error(SYMM_INVALID_ARGUMENT,
                  text("a process has more ranks on one GPU than CUDA_DEVICE_MAX_CONNECTIONS (",
                       info.max_connections, " in rank ", rank,
                       "'s process) lets run at once, so that they would wait for each other for "
                       "ever; set it to the number of ranks, 32 at most, before CUDA starts"),
                  static_cast<int>(rank));
    }
  }
  agreed.sole = (options.flags & SYMM_COMM_SOLE) != 0;
  agreed.beside_nccl = (options.flags & kBesideNccl) != 0;
  agreed.scratch_bytes = options.scratch_bytes;
  if (gpus.domains.count > 1) return gpus;
  if (agreed.size > 1 && agreed.scratch_bytes < least_scratch(agreed.size)) {
    throw Error(SYMM_INVALID_ARGUMENT,
                text("scratch_bytes is ", agreed.scratch_bytes, "; ", agreed.size, " ranks need ",
                     least_scratch(agreed.size), " at least, 0 takes the default"));
  }
  return gpus;
}

}  // namespace symm::cuda
