// Times of the kernels as GPU.md of the design measures them: a graph of 100 all-reduces (20 from
// 8 MiB) of two ranks on two GPUs, bfloat16 sum, out of place, dependent launches, the slowest
// rank's median over replays.
//
// Usage: cuda_timing [--bounded] [--algorithm NAME] [--replays N]
//                    [--grid BLOCKS THREADS LANES] [BYTES...]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/cuda/plan.h"
#include "tests/cuda/world.h"

namespace symm::cuda::testing {
namespace {

struct Reference {
  uint64_t bytes;
  double us;
};
// The prototype's safe default: packed or low latency, with timer and abort word.
constexpr Reference kReferences[] = {
    {256, 1.304},       {1u << 10, 1.340},  {2u << 10, 1.352},  {4u << 10, 1.428},
    {8u << 10, 1.658},  {16u << 10, 1.715}, {32u << 10, 1.778}, {64u << 10, 1.889},
    {128u << 10, 2.10}, {256u << 10, 2.53}, {512u << 10, 3.27}, {1u << 20, 4.73},
    {2u << 20, 7.57},   {4u << 20, 13.30},  {8u << 20, 24.87},  {16u << 20, 47.77},
    {32u << 20, 93.6},  {64u << 20, 184.2},
};

struct Graph {
  CUgraphExec exec = nullptr;
  CUevent before = nullptr;
  CUevent after = nullptr;
};

// The ranks' graphs do not begin together, as the host launches one after the other: operations in
// front of the timed ones bring them together, and the events are nodes of the graph.
constexpr int kInFront = 10;

double measure(World& world, const Plan& plan, const Call& call, CUdeviceptr input[],
               CUdeviceptr output[], int replays) {
  const Driver& d = *driver();
  const int operations = call.count * 2 >= 8u << 20 ? 20 : 100;
  Graph graphs[2];
  for (int r = 0; r < 2; ++r) {
    world.use(r);
    check(d.event_create(&graphs[r].before, CU_EVENT_DEFAULT), "event");
    check(d.event_create(&graphs[r].after, CU_EVENT_DEFAULT), "event");
    check(d.begin_capture(world.stream(r), CU_STREAM_CAPTURE_MODE_RELAXED), "begin");
    for (int i = 0; i < kInFront; ++i) world.enqueue(r, plan, call, input[r], output[r]);
    check(d.event_record_in_graph(graphs[r].before, world.stream(r), CU_EVENT_RECORD_EXTERNAL),
          "record");
    for (int i = 0; i < operations; ++i) world.enqueue(r, plan, call, input[r], output[r]);
    check(d.event_record_in_graph(graphs[r].after, world.stream(r), CU_EVENT_RECORD_EXTERNAL),
          "record");
    CUgraph graph = nullptr;
    check(d.end_capture(world.stream(r), &graph), "end");
    check(d.instantiate(&graphs[r].exec, graph, 0), "instantiate");
    check(d.graph_destroy(graph), "destroy");
  }
  std::vector<double> times;
  for (int replay = -3; replay < replays; ++replay) {
    for (int r = 0; r < 2; ++r) {
      world.use(r);
      check(d.graph_launch(graphs[r].exec, world.stream(r)), "launch");
    }
    world.synchronize();
    double slowest = 0;
    for (int r = 0; r < 2; ++r) {
      float ms = 0;
      world.use(r);
      check(d.event_elapsed(&ms, graphs[r].before, graphs[r].after), "elapsed");
      slowest = std::max(slowest, ms * 1000.0 / operations);
    }
    if (replay >= 0) times.push_back(slowest);
  }
  for (int r = 0; r < 2; ++r) {
    world.use(r);
    d.exec_destroy(graphs[r].exec);
    d.event_destroy(graphs[r].before);
    d.event_destroy(graphs[r].after);
    if (world.error(r).valid != 0) std::printf("rank %d failed: %u\n", r, world.error(r).status);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

int run(int argc, char** argv) {
  WorldOptions options;
  options.gpus = 2;
  options.sole = true;
  int replays = 25;
  Launch grid{0, 0, 0, 0, 0};
  std::string algorithm;
  std::vector<uint64_t> sizes;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--bounded") == 0) {
      options.sole = false;
    } else if (std::strcmp(argv[i], "--algorithm") == 0 && i + 1 < argc) {
      algorithm = argv[++i];
    } else if (std::strcmp(argv[i], "--grid") == 0 && i + 3 < argc) {
      grid.blocks = static_cast<uint32_t>(std::atoi(argv[++i]));
      grid.threads = static_cast<uint32_t>(std::atoi(argv[++i]));
      grid.flags = std::atoi(argv[++i]) == 8 ? uint32_t{kEightLanes} : 0u;
    } else if (std::strcmp(argv[i], "--replays") == 0 && i + 1 < argc) {
      replays = std::atoi(argv[++i]);
    } else {
      sizes.push_back(std::strtoull(argv[i], nullptr, 0));
    }
  }
  if (usable_gpus() < 2) {
    std::fprintf(stderr, "cuda_timing: needs two GPUs that reach each other\n");
    return 77;
  }
  if (sizes.empty()) {
    for (const Reference& reference : kReferences) sizes.push_back(reference.bytes);
  }
  World world(options);
  world.force(grid);
  CUdeviceptr input[2];
  CUdeviceptr output[2];
  const uint64_t most = *std::max_element(sizes.begin(), sizes.end());
  for (int r = 0; r < 2; ++r) {
    input[r] = world.alloc(r, most);
    output[r] = world.alloc(r, most);
    std::vector<uint32_t> words(most / 4);
    std::mt19937 random(r);
    for (uint32_t& word : words) word = (random() & 0x3fff3fff) | 0x30003000;
    world.use(r);
    check(driver()->upload(input[r], words.data(), most, world.stream(r)), "upload");
    world.synchronize();
  }
  std::printf("%10s  %-14s %7s %8s  %9s %9s\n", "bytes", "algorithm", "blocks", "threads", "us",
              "reference");
  for (const uint64_t bytes : sizes) {
    Call call;
    call.form = Form::kAllReduce;
    call.dtype = SYMM_BFLOAT16;
    call.op = SYMM_SUM;
    call.count = bytes / 2;
    Plan plan = cuda::plan(world.agreed(), call);
    for (const Algorithm a :
         {Algorithm::kLowLatency, Algorithm::kPacked, Algorithm::kPackedRounds}) {
      if (algorithm == algorithm_name(a)) plan.algorithm = a;
    }
    Launch launch = cuda::launch(world.agreed(), plan, call, plan.part_count);
    if (grid.threads != 0) launch = grid;
    const double us = measure(world, plan, call, input, output, replays);
    double reference = 0;
    for (const Reference& known : kReferences) {
      if (known.bytes == bytes) reference = known.us;
    }
    std::printf("%10llu  %-14s %7u %8u  %9.3f %9.3f\n", static_cast<unsigned long long>(bytes),
                algorithm_name(plan.algorithm), launch.blocks, launch.threads, us, reference);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace symm::cuda::testing

int main(int argc, char** argv) {
  try {
    return symm::cuda::testing::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cuda_timing: %s\n", error.what());
    return 1;
  }
}
