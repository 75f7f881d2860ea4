// The kernels by themselves, through the driver: ranks are streams of this thread, on one GPU or
// two. Results are compared bit for bit with the CPU's reductions.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <thread>

#include "core/error.h"
#include "core/types.h"
#include "tests/cuda/operation.h"
#include "tests/cuda/world.h"

namespace symm::cuda::testing {
namespace {

using std::chrono::milliseconds;

constexpr symm_dtype kDtypes[] = {SYMM_INT8,    SYMM_UINT8,    SYMM_INT32,       SYMM_UINT32,
                                  SYMM_INT64,   SYMM_UINT64,   SYMM_FLOAT16,     SYMM_FLOAT32,
                                  SYMM_FLOAT64, SYMM_BFLOAT16, SYMM_FLOAT8_E4M3, SYMM_FLOAT8_E5M2};
constexpr symm_op kOps[] = {SYMM_SUM, SYMM_PROD, SYMM_MAX, SYMM_MIN, SYMM_AVG};
constexpr Algorithm kAlgorithms[] = {Algorithm::kLowLatency, Algorithm::kPacked,
                                     Algorithm::kPackedRounds, Algorithm::kTwoShot};

// Ranks, and whether they are spread over two GPUs.
class Kernels : public ::testing::TestWithParam<std::pair<int, int>> {
 protected:
  void SetUp() override {
    if (usable_gpus() < GetParam().second) {
      GTEST_SKIP() << "needs " << GetParam().second << " GPUs that reach each other";
    }
    if (GetParam().first > 1 && launches_block()) {
      GTEST_SKIP() << "CUDA_LAUNCH_BLOCKING is set: one thread launches for all ranks, and would "
                      "wait in the first launch for the kernels that it has yet to launch";
    }
  }
  WorldOptions options() const {
    WorldOptions options;
    options.size = GetParam().first;
    options.gpus = GetParam().second;
    options.scratch_bytes = 64u << 20;
    return options;
  }
};

std::string name_of(const ::testing::TestParamInfo<std::pair<int, int>>& info) {
  return std::to_string(info.param.first) + "RanksOn" + std::to_string(info.param.second) + "Gpus";
}

TEST_P(Kernels, EveryDtypeAndOperationAsOnTheCpu) {
  World world(options());
  Operation operation(world, 4 << 20);
  std::mt19937_64 random(1);
  for (const symm_dtype dtype : kDtypes) {
    const size_t element = dtype_size(dtype);
    for (const symm_op op : kOps) {
      for (const Algorithm algorithm : kAlgorithms) {
        for (const size_t bytes : {16u, 1000u, 5000u, 70000u}) {
          Case c;
          c.dtype = dtype;
          c.op = op;
          c.count = bytes / element + random() % 3;
          c.in_place = random() % 2 == 0;
          Plan plan;
          if (!plan_with(world, c, algorithm, plan)) continue;
          ASSERT_EQ(operation.run(c, plan, random), "")
              << c.text() << " " << algorithm_name(algorithm);
        }
      }
    }
  }
}

TEST_P(Kernels, EveryCountAndAlignment) {
  World world(options());
  Operation operation(world, 4 << 20);
  std::mt19937_64 random(2);
  for (const symm_dtype dtype : {SYMM_UINT8, SYMM_BFLOAT16, SYMM_FLOAT32, SYMM_INT64}) {
    for (uint64_t count = 0; count < 70; ++count) {
      Case c;
      c.dtype = dtype;
      c.count = count < 40 ? count : random() % 40000;
      c.in_place = random() % 4 == 0;
      c.input_shift = random() % 17;
      c.output_shift = random() % 17;
      const Algorithm algorithm = kAlgorithms[random() % 4];
      Plan plan;
      if (!plan_with(world, c, algorithm, plan)) {
        plan = cuda::plan(world.agreed(), c.call());
      }
      ASSERT_EQ(operation.run(c, plan, random), "")
          << c.text() << " " << algorithm_name(plan.algorithm);
    }
  }
}

TEST_P(Kernels, WordsEqualToThePoisonArrive) {
  World world(options());
  Operation operation(world, 4 << 20);
  std::mt19937_64 random(3);
  for (const symm_dtype dtype : kDtypes) {
    for (const Algorithm algorithm : kAlgorithms) {
      for (const uint64_t bytes : {48u, 3000u, 260000u}) {
        Case c;
        c.dtype = dtype;
        c.op = random() % 2 == 0 ? SYMM_SUM : SYMM_MAX;
        c.count = bytes / dtype_size(dtype);
        c.data = Case::Data::kPoison;
        c.in_place = random() % 2 == 0;
        Plan plan;
        if (!plan_with(world, c, algorithm, plan)) continue;
        ASSERT_EQ(operation.run(c, plan, random), "")
            << c.text() << " " << algorithm_name(algorithm);
      }
    }
  }
}

TEST_P(Kernels, LargeMessagesAndMessagesInParts) {
  WorldOptions small = options();
  small.scratch_bytes = 4 << 20;
  World world(small);
  Operation operation(world, 24 << 20);
  std::mt19937_64 random(4);
  for (const symm_dtype dtype : {SYMM_BFLOAT16, SYMM_UINT32}) {
    for (const uint64_t bytes : {600u << 10, 3u << 20, 20u << 20}) {
      Case c;
      c.dtype = dtype;
      c.count = bytes / dtype_size(dtype) - 3;
      c.in_place = random() % 2 == 0;
      c.input_shift = random() % 2;
      const Plan plan = cuda::plan(world.agreed(), c.call());
      ASSERT_EQ(operation.run(c, plan, random), "")
          << c.text() << " " << algorithm_name(plan.algorithm) << " parts " << plan.parts;
    }
  }
}

// Enqueues many operations of any algorithm with nothing in between, and compares afterwards.
void mix(World& world, std::mt19937_64& random, int operations, size_t most_bytes) {
  constexpr int kAtOnce = 8;
  std::vector<std::unique_ptr<Operation>> slots;
  for (int i = 0; i < kAtOnce; ++i) {
    slots.push_back(std::make_unique<Operation>(world, most_bytes));
  }
  for (int done = 0; done < operations; done += kAtOnce) {
    std::vector<std::pair<Case, Plan>> calls;
    for (auto& slot : slots) {
      Case c;
      c.dtype = kDtypes[random() % 12];
      c.op = random() % 2 == 0 ? SYMM_SUM : kOps[random() % 5];
      const uint64_t limit = random() % 8 == 0 ? most_bytes : random() % 2 == 0 ? 2048 : 20000;
      c.count = random() % (limit / dtype_size(c.dtype));
      c.in_place = random() % 3 == 0;
      c.input_shift = random() % 4 == 0 ? random() % 9 : 0;
      if (random() % 16 == 0) c.data = Case::Data::kPoison;
      Plan plan;
      if (!plan_with(world, c, kAlgorithms[random() % 4], plan)) {
        plan = cuda::plan(world.agreed(), c.call());
      }
      calls.emplace_back(c, plan);
      slot->prepare(c, random);
    }
    const Plan barrier = cuda::plan(world.agreed(), Call{});
    for (int r = 0; r < world.size(); ++r) {
      for (int i = 0; i < kAtOnce; ++i) {
        slots[i]->enqueue(r, calls[i].second);
        if (i % 3 == 2) world.enqueue(r, barrier, Call{}, 0, 0);
      }
    }
    for (int i = 0; i < kAtOnce; ++i) {
      slots[i]->finish();
      ASSERT_EQ(slots[i]->difference(), "")
          << "operation " << done + i << ": " << calls[i].first.text() << " "
          << algorithm_name(calls[i].second.algorithm);
    }
  }
}

TEST_P(Kernels, AlgorithmsMixOnOneEpoch) {
  World world(options());
  std::mt19937_64 random(5);
  mix(world, random, 480, 300000);
}

TEST_P(Kernels, TheEpochWrapsAndOldFlagsDoNotMatch) {
  World world(options());
  std::mt19937_64 random(6);
  for (const uint32_t start : {(1u << 24) - 20, 0x7fffffe8u, 0xffffffe0u}) {
    SCOPED_TRACE(start);
    world.reset();
    world.set_epoch(start);
    if (world.size() > 1 && start > 1u << 25) {
      // Slots as operations of epochs to come would have left them 2^32 operations ago. Until those
      // epochs nothing uses the slots, so that only the sweep after the wrap can have emptied them.
      const uint32_t odd = start > 0xf0000000u ? 7 : 0x80000007u;
      const Layout& layout = world.layout();
      Case c;
      c.count = 64;
      Plan low_latency;
      Plan packed;
      ASSERT_TRUE(plan_with(world, c, Algorithm::kLowLatency, low_latency));
      ASSERT_TRUE(plan_with(world, c, Algorithm::kPacked, packed));
      const uint32_t hash = hash_of(record_of(c.call(), Algorithm::kLowLatency));
      std::vector<uint32_t> words(layout.low_latency_part / 4 * (world.size() - 1));
      for (const uint64_t bank : {0, 1}) {
        for (size_t i = 0; i + 3 < words.size(); i += 4) {
          words[i + 1] = bank == 0 ? odd + 1 : odd;
          words[i + 3] = words[i + 1] ^ hash;
        }
        for (int r = 0; r < world.size(); ++r) {
          world.use(r);
          check(
              driver()->upload(world.arena(r) + layout.low_latency + bank * layout.low_latency_bank,
                               words.data(), words.size() * 4, world.stream(r)),
              "cuMemcpyHtoDAsync");
        }
        world.synchronize();
      }
      Operation operation(world, 4096);
      for (uint32_t epoch = start; epoch != odd + 5;) {
        epoch = epoch == 0xffffffffu ? 2 : epoch + 1;
        const bool planted = epoch == odd || epoch == odd + 1;
        ASSERT_EQ(operation.run(c, planted ? low_latency : packed, random), "")
            << "epoch " << epoch;
        ASSERT_EQ(world.epoch(0), epoch);
      }
      world.set_epoch(start);
    }
    mix(world, random, 64, 100000);
  }
}

TEST_P(Kernels, AGraphOfAHundredLaunchesReplays) {
  World world(options());
  std::mt19937_64 random(7);
  const Driver& d = *driver();
  for (const uint64_t bytes : {64u, 1024u, 8192u, 100000u, 1u << 20}) {
    Operation operation(world, bytes);
    Case c;
    c.dtype = SYMM_BFLOAT16;
    c.count = bytes / 2;
    const Plan plan = cuda::plan(world.agreed(), c.call());
    operation.prepare(c, random);
    world.synchronize();
    std::vector<CUgraphExec> graphs;
    for (int r = 0; r < world.size(); ++r) {
      world.use(r);
      check(d.begin_capture(world.stream(r), CU_STREAM_CAPTURE_MODE_RELAXED), "begin");
      for (int i = 0; i < 100; ++i) operation.enqueue(r, plan);
      CUgraph graph = nullptr;
      check(d.end_capture(world.stream(r), &graph), "end");
      CUgraphExec exec = nullptr;
      check(d.instantiate(&exec, graph, 0), "instantiate");
      check(d.graph_destroy(graph), "destroy");
      graphs.push_back(exec);
    }
    for (int replay = 0; replay < 20; ++replay) {
      operation.prepare(c, random);
      for (int r = 0; r < world.size(); ++r) {
        world.use(r);
        check(d.graph_launch(graphs[r], world.stream(r)), "launch");
      }
      operation.finish();
      ASSERT_EQ(operation.difference(), "") << bytes << " bytes, replay " << replay;
    }
    for (int r = 0; r < world.size(); ++r) {
      world.use(r);
      check(d.exec_destroy(graphs[r]), "destroy");
    }
  }
}

TEST_P(Kernels, CallsThatDifferAreAMismatchOnEveryRank) {
  if (GetParam().first < 2) GTEST_SKIP() << "one rank agrees with itself";
  WorldOptions small = options();
  small.scratch_bytes = 8 << 20;
  World world(small);
  const int last = world.size() - 1;
  std::vector<std::pair<Call, Plan>> calls;
  const auto add = [&](const Case& c, Algorithm algorithm) {
    Plan plan;
    if (plan_with(world, c, algorithm, plan)) calls.emplace_back(c.call(), plan);
  };
  Case c;
  c.count = 300;
  for (const Algorithm algorithm : kAlgorithms) add(c, algorithm);
  c.count = 299;
  for (const Algorithm algorithm : kAlgorithms) add(c, algorithm);
  c.op = SYMM_MAX;
  add(c, Algorithm::kLowLatency);
  add(c, Algorithm::kPacked);
  c.dtype = SYMM_INT32;
  add(c, Algorithm::kPacked);
  c.count = 0;
  calls.emplace_back(c.call(), plan(world.agreed(), c.call()));
  calls.emplace_back(Call{}, plan(world.agreed(), Call{}));
  std::vector<CUdeviceptr> memory;
  for (int r = 0; r < world.size(); ++r) memory.push_back(world.alloc(r, 4096));
  for (size_t a = 0; a < calls.size(); ++a) {
    for (size_t b = 0; b < calls.size(); ++b) {
      if (a == b) continue;
      world.reset();
      for (int r = 0; r < world.size(); ++r) {
        const auto& [call, plan] = calls[r == last ? b : a];
        world.enqueue(r, plan, call, memory[r], memory[r]);
      }
      world.synchronize();
      for (int r = 0; r < world.size(); ++r) {
        SCOPED_TRACE(symm::text("calls ", a, " ", b, " rank ", r));
        const ErrorRecord& error = world.error(r);
        ASSERT_EQ(error.valid, 1u);
        ASSERT_EQ(error.status, static_cast<uint32_t>(-SYMM_MISMATCH));
        ASSERT_EQ(error.epoch, 1u);
        if (r == last || error.peer == last) {
          const auto& mine = calls[r == last ? b : a];
          const auto& theirs = calls[r == last ? a : b];
          EXPECT_EQ(call_of(error.mine), mine.first);
          EXPECT_EQ(call_of(error.theirs), theirs.first);
          EXPECT_EQ(hash_of(error.theirs),
                    hash_of(record_of(theirs.first, theirs.second.algorithm)));
        }
        EXPECT_NE(error.peer, r);
      }
    }
  }
  // The communicator has ended: another launch returns at once and changes nothing.
  const uint32_t epoch = world.epoch(0);
  world.enqueue(0, calls[0].second, calls[0].first, memory[0], memory[0]);
  world.synchronize();
  EXPECT_EQ(world.epoch(0), epoch);
}

class Faults : public Kernels {
 protected:
  static constexpr int kAnyPeer = -2;

  // Rank 0 alone calls each algorithm; `meanwhile` is run while it waits.
  template <class Meanwhile>
  void alone(uint64_t timeout_ns, symm_status status, int peer, Meanwhile&& meanwhile) {
    WorldOptions small = options();
    small.scratch_bytes = 8 << 20;
    small.timeout_ns = timeout_ns;
    World world(small);
    const CUdeviceptr memory = world.alloc(0, 1 << 20);
    Case c;
    c.count = 2000;
    std::vector<std::pair<Call, Plan>> calls;
    for (const Algorithm algorithm : kAlgorithms) {
      Plan plan;
      if (plan_with(world, c, algorithm, plan)) calls.emplace_back(c.call(), plan);
    }
    calls.emplace_back(Call{}, plan(world.agreed(), Call{}));
    for (const auto& [call, plan] : calls) {
      SCOPED_TRACE(algorithm_name(plan.algorithm));
      world.reset();
      world.enqueue(0, plan, call, memory, memory);
      meanwhile(world);
      world.synchronize();
      const ErrorRecord& error = world.error(0);
      ASSERT_EQ(error.valid, 1u);
      EXPECT_EQ(error.status, static_cast<uint32_t>(-status));
      if (peer == kAnyPeer) {
        EXPECT_GE(error.peer, 1);
      } else {
        EXPECT_EQ(error.peer, peer);
      }
      EXPECT_EQ(error.epoch, 1u);
      EXPECT_EQ(call_of(error.mine), call);
      EXPECT_EQ(world.error(1).valid, 0u);
    }
  }
};

TEST_P(Faults, AWaitEndsAtItsTimeout) {
  const auto start = std::chrono::steady_clock::now();
  alone(100'000'000, SYMM_TIMEOUT, kAnyPeer, [](World&) {});
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(100));
}

TEST_P(Faults, AWaitEndsByTheAbortWord) {
  alone(20'000'000'000, SYMM_ABORTED, -1, [](World& world) {
    std::this_thread::sleep_for(milliseconds(5));
    world.use(0);
    EXPECT_EQ(driver()->stream_query(world.stream(0)), CUDA_ERROR_NOT_READY);
    world.store(0, offsetof(Control, abort), -SYMM_ABORTED);
  });
}

TEST_P(Faults, AWaitForOneThatHasLeftEnds) {
  alone(20'000'000'000, SYMM_PEER, 1, [](World& world) {
    std::this_thread::sleep_for(milliseconds(5));
    world.store(0, offsetof(Control, left) + 4, 1);
  });
}

TEST_P(Faults, WhatWasSentBeforeLeavingCounts) {
  World world(options());
  Operation operation(world, 1 << 20);
  std::mt19937_64 random(8);
  Case c;
  c.count = 2000;
  for (const Algorithm algorithm : kAlgorithms) {
    Plan plan;
    if (!plan_with(world, c, algorithm, plan)) continue;
    if (algorithm == Algorithm::kTwoShot) continue;  // whose peers need more than the first sends
    world.reset();
    operation.prepare(c, random);
    world.synchronize();
    for (int r = 1; r < world.size(); ++r) operation.enqueue(r, plan);
    std::this_thread::sleep_for(milliseconds(20));
    for (int r = 1; r < world.size(); ++r) world.store(0, offsetof(Control, left) + 4 * r, 1);
    operation.enqueue(0, plan);
    operation.finish();
    EXPECT_EQ(operation.difference(), "") << algorithm_name(algorithm);
  }
}

TEST_P(Faults, ALatePeerIsWaitedFor) {
  World world(options());
  Operation operation(world, 1 << 20);
  std::mt19937_64 random(9);
  Case c;
  c.count = 5000;
  for (const Algorithm algorithm : kAlgorithms) {
    Plan plan;
    if (!plan_with(world, c, algorithm, plan)) continue;
    operation.prepare(c, random);
    world.synchronize();
    for (int r = 0; r < world.size() - 1; ++r) operation.enqueue(r, plan);
    std::this_thread::sleep_for(milliseconds(50));
    operation.enqueue(world.size() - 1, plan);
    operation.finish();
    EXPECT_EQ(operation.difference(), "") << algorithm_name(algorithm);
  }
}

INSTANTIATE_TEST_SUITE_P(, Kernels,
                         ::testing::Values(std::pair(1, 1), std::pair(2, 1), std::pair(3, 1),
                                           std::pair(4, 1), std::pair(8, 1), std::pair(2, 2),
                                           std::pair(4, 2), std::pair(5, 2), std::pair(8, 2)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(, Faults,
                         ::testing::Values(std::pair(2, 1), std::pair(2, 2), std::pair(4, 2),
                                           std::pair(3, 1)),
                         name_of);

}  // namespace
}  // namespace symm::cuda::testing
