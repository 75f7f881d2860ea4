// What the engine computes among threads: any mixture of calls, any number of ranks, in rank order.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "core/cpu/engine.h"
#include "tests/unit/engine_group.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace symm::cpu {
namespace {

class EveryNumberOfRanks : public testing::TestWithParam<int> {};

TEST_P(EveryNumberOfRanks, ReducesAnyMixtureOfCallsInRankOrder) {
  const int size = GetParam();
  const int steps = size <= 4 ? 250 : size <= 8 ? 120 : size <= 16 ? 60 : 25;
  const size_t most = size <= 8 ? 3000000 : size <= 16 ? 800000 : 300000;
  const auto schedule = random_schedule(seed() + static_cast<uint64_t>(size), size, steps, most);
  for (const bool oversubscribed : {false, true}) {
    // With threads that outnumber the CPUs spinning is only slow.
    if (!oversubscribed && size > 8) continue;
    EngineOptions options = options_for(size);
    options.oversubscribed = oversubscribed;
    run_schedule(options, schedule);
  }
}

TEST_P(EveryNumberOfRanks, WorksWithTheLeastScratch) {
  const int size = GetParam();
  EngineOptions options = options_for(size);
  options.scratch_bytes = 1;
  size_t least = 0;
  try {
    arena_bytes(options);
    FAIL() << "1 byte of scratch was enough";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), SYMM_INVALID_ARGUMENT);
    ASSERT_EQ(sscanf(strstr(error.what(), "at least "), "at least %zu", &least), 1) << error.what();
  }
  options.scratch_bytes = least - 1;
  EXPECT_THROW(arena_bytes(options), Error);
  options.scratch_bytes = least;
  EXPECT_LE(arena_bytes(options), least * static_cast<size_t>(size));
  run_schedule(options, random_schedule(seed() + 77, size, size <= 8 ? 40 : 8, 200000));
}

TEST_P(EveryNumberOfRanks, CountsPastTheWrapOfStepsAndEpochs) {
  const int size = GetParam();
  const auto schedule = random_schedule(seed() + 99, size, size <= 16 ? 40 : 12, 2000);
  for (const uint32_t first : {(1u << 24) - 5, 0xffffffffu - 5}) {
    EngineOptions options = options_for(size);
    options.first_epoch = first;
    run_schedule(options, schedule);
  }
}

INSTANTIATE_TEST_SUITE_P(Engine, EveryNumberOfRanks, testing::Values(1, 2, 3, 4, 5, 8, 16, 64),
                         testing::PrintToStringParamName());

TEST(Engine, AddsFloatsInRankOrderAndNotInAnyOther) {
  constexpr int kSize = 5;
  // 1e8 + 1 loses the 1: another order gives another sum.
  const float values[kSize] = {1.0f, 1e8f, -1e8f, 3.0f, 0.5f};
  float sum = values[0];
  for (int rank = 1; rank < kSize; ++rank) sum += values[rank];
  Group group(options_for(kSize));
  for (const size_t count : {size_t{1}, size_t{100}, size_t{5000}, size_t{200000}}) {
    std::vector<std::vector<float>> outputs(kSize, std::vector<float>(count));
    expect_ok(group.run([&](int rank, Engine& engine) {
      const std::vector<float> input(count, values[rank]);
      engine.all_reduce(all_reduce_of(count), input.data(), outputs[rank].data());
    }));
    for (const auto& output : outputs) EXPECT_EQ(output, std::vector<float>(count, sum));
  }
}

TEST(Engine, SurvivesStallsAtRandomPoints) {
  for (const int size : {2, 3, 8}) {
    const uint64_t stalls = seed() + 5;
    run_schedule(options_for(size), random_schedule(stalls, size, 60, 100000), stalls);
  }
}

TEST(Engine, SetUpCallsCountAsCalls) {
  constexpr int kSize = 3;
  Group group(options_for(kSize));
  const auto schedule = random_schedule(seed() + 6, kSize, 30, 10000);
  std::vector<std::string> wrong(kSize);
  expect_ok(group.run([&](int rank, Engine& engine) {
    for (const Step& step : schedule) {
      const Call setup{Form::kWindowAlloc, SYMM_DTYPE_NONE, SYMM_OP_NONE, 4096, 0, 0};
      engine.publish_setup(setup);
      engine.check_setup(setup);
      const std::string problem = run_step(step, rank, engine);
      if (wrong[rank].empty()) wrong[rank] = problem;
    }
  }));
  for (const std::string& problem : wrong) EXPECT_EQ(problem, "");
}

TEST(Engine, ABarrierOrdersMemory) {
  for (const int size : {2, 3, 8}) {
    Group group(options_for(size));
    std::vector<int> plain(size);  // not atomic on purpose
    std::atomic<int> wrong{0};
    expect_ok(group.run([&](int rank, Engine& engine) {
      for (int round = 1; round <= 200; ++round) {
        plain[rank] = round;
        engine.barrier();
        for (const int value : plain) wrong += value != round;
        engine.barrier();
      }
    }));
    EXPECT_EQ(wrong, 0);
  }
}

#if defined(__x86_64__)
TEST(Engine, ACallersFloatControlsChangeNoBitAndComeBack) {
  constexpr int kSize = 2;
  constexpr unsigned kFlushAndRoundUp = 0x8040 | 0x4000;
  Group group(options_for(kSize));
  for (const size_t count : {size_t{3}, size_t{1000}, size_t{100000}}) {
    std::vector<std::vector<float>> outputs(kSize, std::vector<float>(count));
    std::atomic<int> restored{0};
    expect_ok(group.run([&](int rank, Engine& engine) {
      // A subnormal sum and a sum that must be rounded, by turns.
      std::vector<float> input(count, 1.0e-39f);
      for (size_t i = 0; i < count; i += 2) input[i] = rank == 0 ? 1.0f : 1.0e-8f;
      const unsigned before = _mm_getcsr();
      if (rank == 1) _mm_setcsr(before | kFlushAndRoundUp);
      const unsigned set = _mm_getcsr() & 0xffc0;
      engine.all_reduce(all_reduce_of(count), input.data(), outputs[rank].data());
      restored += (_mm_getcsr() & 0xffc0) == set;
      _mm_setcsr(before);
    }));
    EXPECT_EQ(restored, kSize);
    EXPECT_EQ(outputs[0], outputs[1]);
    EXPECT_EQ(outputs[0][0], 1.0f);
    EXPECT_EQ(outputs[0][1], 2.0e-39f);
  }
}
#endif

}  // namespace
}  // namespace symm::cpu
