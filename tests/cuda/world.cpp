#include "tests/cuda/world.h"

#include <algorithm>
#include <map>
#include <stdexcept>

#include "core/types.h"
#include "kernels/cuda/images.h"

namespace symm::cuda::testing {
namespace {

struct Gpu {
  CUdevice device = 0;
  CUcontext context = nullptr;
  int multiprocessors = 0;
  int major = 0;
  std::vector<CUfunction> functions;  // by place in kernels()
};

Gpu open_gpu(int ordinal) {
  const Driver& d = *driver();
  Gpu gpu;
  check(d.device(&gpu.device, ordinal), "cuDeviceGet");
  check(d.retain_context(&gpu.context, gpu.device), "cuDevicePrimaryCtxRetain");
  check(d.set_context(gpu.context), "cuCtxSetCurrent");
  check(d.attribute(&gpu.multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, gpu.device),
        "cuDeviceGetAttribute");
  check(d.attribute(&gpu.major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, gpu.device),
        "cuDeviceGetAttribute");
  std::vector<CUmodule> modules;
  for (int i = 0; i < images().count; ++i) {
    CUmodule module = nullptr;
    check(d.module_load(&module, images().images[i].data), "cuModuleLoadData");
    modules.push_back(module);
  }
  const Kernels all = kernels();
  for (int i = 0; i < all.count; ++i) {
    CUfunction function = nullptr;
    check(d.module_function(&function, modules[all.kernels[i].image], all.kernels[i].name),
          all.kernels[i].name);
    gpu.functions.push_back(function);
  }
  return gpu;
}

// Opened once: contexts and modules stay.
std::vector<Gpu>& gpus() {
  static std::vector<Gpu> opened = [] {
    std::vector<Gpu> result;
    const Driver& d = *driver();
    for (int i = 0; i < usable_gpus(); ++i) result.push_back(open_gpu(i));
    for (size_t i = 0; i < result.size(); ++i) {
      check(d.set_context(result[i].context), "cuCtxSetCurrent");
      for (size_t j = 0; j < result.size(); ++j) {
        if (i != j) check(d.enable_peer_access(result[j].context, 0), "cuCtxEnablePeerAccess");
      }
    }
    return result;
  }();
  return opened;
}

}  // namespace

int usable_gpus() {
  if (driver() == nullptr || kernels().count == 0) return 0;
  int count = 0;
  if (driver()->device_count(&count) != CUDA_SUCCESS || count < 2) return count;
  int one = 0;
  int other = 0;
  driver()->can_access_peer(&one, 0, 1);
  driver()->can_access_peer(&other, 1, 0);
  return one != 0 && other != 0 ? 2 : 1;
}

World::World(const WorldOptions& options) : timeout_ns_(options.timeout_ns) {
  const Driver& d = *driver();
  agreed_.size = options.size;
  agreed_.most_ranks_on_a_gpu = (options.size + options.gpus - 1) / options.gpus;
  agreed_.multiprocessors = gpus()[0].multiprocessors;
  agreed_.dependent_launch = options.dependent_launch && gpus()[0].major >= 9;
  agreed_.sole = options.sole;
  agreed_.scratch_bytes = options.scratch_bytes;
  for (const Gpu& gpu : gpus()) {
    agreed_.multiprocessors = std::min(agreed_.multiprocessors, gpu.multiprocessors);
  }
  layout_ = layout_of(agreed_);
  ranks_.resize(options.size);
  for (int r = 0; r < options.size; ++r) {
    Rank& rank = ranks_[r];
    rank.gpu = r % options.gpus;
    use(r);
    check(d.stream_create(&rank.stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    check(d.stream_create(&rank.side_stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    check(d.alloc(&rank.arena, layout_.bytes), "cuMemAlloc");
    void* memory = nullptr;
    constexpr unsigned kFlags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
    check(d.host_alloc(&memory, sizeof(ErrorRecord), kFlags), "cuMemHostAlloc");
    rank.error = static_cast<ErrorRecord*>(memory);
    check(d.host_device_pointer(&rank.error_on_device, memory, 0), "cuMemHostGetDevicePointer");
    check(d.host_alloc(&memory, 64, kFlags), "cuMemHostAlloc");
    rank.pinned = static_cast<uint32_t*>(memory);
  }
  reset();
}

World::~World() {
  const Driver& d = *driver();
  for (size_t r = 0; r < ranks_.size(); ++r) {
    Rank& rank = ranks_[r];
    d.set_context(gpus()[rank.gpu].context);
    d.synchronize_context();
    for (const CUdeviceptr pointer : rank.allocations) d.free(pointer);
    d.free(rank.arena);
    d.host_free(rank.error);
    d.host_free(rank.pinned);
    d.stream_destroy(rank.stream);
    d.stream_destroy(rank.side_stream);
  }
}

void World::use(int rank) const {
  check(driver()->set_context(gpus()[ranks_[rank].gpu].context), "cuCtxSetCurrent");
}

void World::reset() {
  const Driver& d = *driver();
  for (int r = 0; r < size(); ++r) {
    use(r);
    check(d.synchronize_context(), "cuCtxSynchronize");
    check(d.fill32(arena(r), 0, layout_.bytes / 4), "cuMemsetD32");
    if (layout_.packed_bytes != 0) {
      check(d.fill32(arena(r) + layout_.packed, kPoison, layout_.packed_bytes / 4), "cuMemsetD32");
    }
    *ranks_[r].error = ErrorRecord{};
    check(d.synchronize_context(), "cuCtxSynchronize");
  }
}

CUdeviceptr World::alloc(int rank, size_t bytes) {
  use(rank);
  CUdeviceptr pointer = 0;
  check(driver()->alloc(&pointer, bytes), "cuMemAlloc");
  ranks_[rank].allocations.push_back(pointer);
  return pointer;
}

void World::enqueue(int r, const Plan& plan, const Call& call, CUdeviceptr input,
                    CUdeviceptr output) {
  const Rank& rank = ranks_[r];
  use(r);
  Params params{};
  params.timeout_ns = timeout_ns_;
  params.error = reinterpret_cast<ErrorRecord*>(rank.error_on_device);
  params.own = reinterpret_cast<std::byte*>(arena(r));
  int peers = 0;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != r) params.peers[peers++] = reinterpret_cast<std::byte*>(arena(peer));
  }
  params.layout = layout_;
  params.call = record_of(call, plan.algorithm);
  params.call_hash = hash_of(params.call);
  params.rank = r;
  params.size = size();
  params.op = call.op;
  for (uint64_t part = 0; part < plan.parts; ++part) {
    const uint64_t done = part * plan.part_count;
    params.count = std::min(plan.part_count, call.count - done);
    if (plan.algorithm == Algorithm::kBarrier) params.count = 0;
    const uint64_t offset = done * dtype_size(call.dtype);
    params.input = reinterpret_cast<const std::byte*>(input + offset);
    params.output = reinterpret_cast<std::byte*>(output + offset);
    Launch launch = cuda::launch(agreed_, plan, call, params.count);
    if (forced_.threads != 0) {
      launch.blocks = forced_.blocks;
      launch.threads = forced_.threads;
      launch.flags = forced_.flags;
    }
    params.flags = launch.flags;

    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config{};
    config.gridDimX = launch.blocks;
    config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = launch.threads;
    config.blockDimY = config.blockDimZ = 1;
    config.sharedMemBytes = launch.shared_bytes;
    config.hStream = rank.stream;
    config.attrs = &attribute;
    config.numAttrs = agreed_.dependent_launch ? 1 : 0;
    void* arguments[] = {&params};
    check(driver()->launch(&config, gpus()[rank.gpu].functions[launch.kernel], arguments, nullptr),
          "cuLaunchKernelEx");
  }
}

void World::synchronize() {
  for (int r = 0; r < size(); ++r) {
    use(r);
    check(driver()->stream_synchronize(stream(r)), "cuStreamSynchronize");
  }
}

void World::store(int r, uint64_t offset, uint32_t word) {
  Rank& rank = ranks_[r];
  use(r);
  *rank.pinned = word;
  check(driver()->upload(rank.arena + offset, rank.pinned, 4, rank.side_stream),
        "cuMemcpyHtoDAsync");
  check(driver()->stream_synchronize(rank.side_stream), "cuStreamSynchronize");
}

void World::set_epoch(uint32_t epoch) {
  synchronize();
  for (int r = 0; r < size(); ++r) store(r, offsetof(Control, epoch), epoch);
}

uint32_t World::epoch(int r) {
  Rank& rank = ranks_[r];
  use(r);
  check(driver()->download(rank.pinned, rank.arena + offsetof(Control, epoch), 4, rank.side_stream),
        "cuMemcpyDtoHAsync");
  check(driver()->stream_synchronize(rank.side_stream), "cuStreamSynchronize");
  return *rank.pinned;
}

}  // namespace symm::cuda::testing
