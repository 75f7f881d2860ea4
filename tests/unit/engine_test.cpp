// The engine among threads that share an anonymous arena and among processes that share a memfd.
#include "core/cpu/engine.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <optional>
#include <random>
#include <thread>

#include "core/cpu/arena.h"
#include "core/cpu/fault_block.h"
#include "core/cpu/record.h"
#include "core/deadline.h"
#include "core/types.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace symm::cpu {
namespace {

constexpr size_t kCanary = 64;

// SYMM_TEST_SEED repeats a run.
uint64_t seed() {
  static const uint64_t value = [] {
    const char* text = getenv("SYMM_TEST_SEED");
    const uint64_t chosen = text != nullptr ? strtoull(text, nullptr, 0) : std::random_device{}();
    fprintf(stderr, "SYMM_TEST_SEED=%llu\n", static_cast<unsigned long long>(chosen));
    return chosen;
  }();
  return value;
}

class Mapping {
 public:
  explicit Mapping(size_t bytes, int fd = -1) : bytes_(bytes) {
    const int flags = MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS : 0);
    void* const address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (address == MAP_FAILED) throw std::runtime_error("mmap");
    data_ = static_cast<std::byte*>(address);
  }
  ~Mapping() { munmap(data_, bytes_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::byte* data() const { return data_; }

 private:
  size_t bytes_;
  std::byte* data_;
};

EngineOptions options_for(int size) {
  EngineOptions options;
  options.size = size;
  options.level = best_level();
  options.oversubscribed = size > 2;
  options.wait_timeout_ms = 60000;
  return options;
}

Call all_reduce_of(uint64_t count, symm_dtype dtype = SYMM_FLOAT32, symm_op op = SYMM_SUM) {
  return {Form::kAllReduce, dtype, op, count, 0, 0};
}

struct Outcome {
  symm_status status = SYMM_OK;
  int rank = kNoRank;
  std::string message;
};

// Ranks as threads. A rank's body may throw Error; its outcome then says so.
class Group {
 public:
  using Body = std::function<void(int rank, Engine& engine)>;

  explicit Group(const EngineOptions& options)
      : options_(options), arena_(arena_bytes(options)), local_faults_(options.size) {
    for (int rank = 0; rank < options.size; ++rank) {
      EngineOptions own = options;
      own.rank = rank;
      engines_.push_back(std::make_unique<Engine>(arena_.data(), own, local_faults_[rank]));
    }
  }

  std::vector<Outcome> run(const Body& body) {
    std::vector<Outcome> outcomes(options_.size);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < options_.size; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          body(rank, *engines_[rank]);
        } catch (const Error& error) {
          outcomes[rank] = {error.status(), error.rank(), error.what()};
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return outcomes;
  }

  Engine& engine(int rank) { return *engines_[rank]; }
  std::byte* arena() { return arena_.data(); }
  std::atomic<int32_t>& local_fault(int rank) { return local_faults_[rank]; }

 private:
  const EngineOptions options_;
  Mapping arena_;
  std::vector<std::atomic<int32_t>> local_faults_;
  std::vector<std::unique_ptr<Engine>> engines_;
};

void expect_ok(const std::vector<Outcome>& outcomes) {
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    EXPECT_EQ(outcomes[rank].status, SYMM_OK) << "rank " << rank << ": " << outcomes[rank].message;
  }
}

void expect_all(const std::vector<Outcome>& outcomes, symm_status status,
                const std::vector<std::string>& texts) {
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    EXPECT_EQ(outcomes[rank].status, status) << "rank " << rank << ": " << outcomes[rank].message;
    for (const std::string& part : texts) {
      EXPECT_NE(outcomes[rank].message.find(part), std::string::npos)
          << "rank " << rank << " says: " << outcomes[rank].message << "\nwithout: " << part;
    }
  }
}

// A step of a schedule: a call with inputs that follow from its seed, and what must come out.
struct Step {
  Call call;
  bool in_place = false;
  size_t misalign = 0;  // elements
  uint64_t seed = 0;
  std::vector<std::byte> expected;
};

// Random bits without NaN, infinity and values that overflow in sums: the second highest bit of a
// float is its exponent's highest.
std::vector<std::byte> input_of(const Step& step, int rank) {
  const size_t element = dtype_size(step.call.dtype);
  std::vector<std::byte> input(step.call.count * element);
  std::mt19937_64 random(step.seed * 1000003 + static_cast<uint64_t>(rank));
  for (size_t i = 0; i < input.size(); i += 8) {
    const uint64_t bits = random();
    memcpy(&input[i], &bits, std::min<size_t>(8, input.size() - i));
  }
  for (size_t i = element - 1; i < input.size(); i += element) input[i] &= std::byte{0xbf};
  return input;
}

void expect_result_of(Step* step, int size) {
  std::vector<std::vector<std::byte>> inputs;
  std::vector<const void*> sources;
  for (int rank = 0; rank < size; ++rank) {
    inputs.push_back(input_of(*step, rank));
    sources.push_back(inputs.back().data());
  }
  step->expected.resize(inputs[0].size());
  if (step->call.count == 0) return;
  reduce_function(best_level(), step->call.dtype, step->call.op)(
      step->expected.data(), nullptr, sources.data(), size, step->call.count, Store::kCached);
}

Step random_step(std::mt19937_64& random, int size, size_t most_bytes) {
  Step step;
  step.seed = random();
  if (random() % 12 == 0) return step;  // a barrier
  step.call.form = random() % 4 == 0 ? Form::kWindowAllReduce : Form::kAllReduce;
  step.call.dtype = static_cast<symm_dtype>(random() % kDtypeCount);
  step.call.op = static_cast<symm_op>(random() % kOpCount);
  if (step.call.form == Form::kWindowAllReduce) {
    step.call.window = random() % 3;
    step.call.offset = 8 * (random() % 5);
  }
  constexpr size_t kUpTo[] = {8, 56, 64, 300, 1200, 5000, 40000, 300000, 3000000};
  const size_t up_to = std::min(kUpTo[random() % std::size(kUpTo)], most_bytes);
  step.call.count = random() % (up_to + 1) / dtype_size(step.call.dtype);
  step.in_place = random() % 3 == 0;
  step.misalign = random() % 8;
  expect_result_of(&step, size);
  return step;
}

std::vector<Step> random_schedule(uint64_t seed, int size, int steps, size_t most_bytes) {
  std::mt19937_64 random(seed);
  std::vector<Step> schedule;
  for (int i = 0; i < steps; ++i) schedule.push_back(random_step(random, size, most_bytes));
  return schedule;
}

// "" or what was wrong.
std::string run_step(const Step& step, int rank, Engine& engine) {
  if (step.call.form == Form::kBarrier) {
    engine.barrier();
    return "";
  }
  const std::vector<std::byte> input = input_of(step, rank);
  const size_t start = kCanary + step.misalign * dtype_size(step.call.dtype);
  std::vector<std::byte> out(start + input.size() + kCanary, std::byte{0xee});
  std::byte* const output = out.data() + start;
  if (step.in_place) std::copy(input.begin(), input.end(), output);
  engine.all_reduce(step.call, step.in_place ? output : input.data(), output);
  for (size_t i = 0; i < input.size(); ++i) {
    if (output[i] != step.expected[i]) {
      return text("rank ", rank, ", ", call_text(step.call), step.in_place ? " in place" : "",
                  ": byte ", i, " of ", input.size(), " is wrong; ",
                  engine.plan(step.call).algorithm);
    }
  }
  for (size_t i = 0; i < kCanary; ++i) {
    if (output[input.size() + i] != std::byte{0xee} || out[i] != std::byte{0xee}) {
      return text("rank ", rank, ", ", call_text(step.call), " wrote beyond its output");
    }
  }
  return "";
}

void run_schedule(const EngineOptions& options, const std::vector<Step>& schedule,
                  uint64_t stall_seed = 0) {
  Group group(options);
  std::vector<std::string> wrong(options.size);
  expect_ok(group.run([&](int rank, Engine& engine) {
    std::mt19937_64 random(stall_seed + static_cast<uint64_t>(rank));
    for (const Step& step : schedule) {
      if (stall_seed != 0 && random() % 8 == 0) usleep(static_cast<useconds_t>(random() % 3000));
      const std::string problem = run_step(step, rank, engine);
      if (wrong[rank].empty()) wrong[rank] = problem;
    }
  }));
  for (const std::string& problem : wrong) EXPECT_EQ(problem, "");
}

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

// ---- Faults ----

std::vector<Call> different_calls() {
  return {
      all_reduce_of(2),
      all_reduce_of(2, SYMM_INT32),
      all_reduce_of(2, SYMM_FLOAT32, SYMM_MAX),
      all_reduce_of(0),
      all_reduce_of(60),
      all_reduce_of(3000),
      all_reduce_of(100000),
      {Form::kWindowAllReduce, SYMM_FLOAT32, SYMM_SUM, 2, 1, 0},
      {Form::kWindowAllReduce, SYMM_FLOAT32, SYMM_SUM, 2, 1, 8},
      {Form::kWindowAllReduce, SYMM_FLOAT32, SYMM_SUM, 100000, 2, 0},
      {},
      {Form::kSplit, SYMM_DTYPE_NONE, SYMM_OP_NONE, 0, 0, 0},
      {Form::kWindowAlloc, SYMM_DTYPE_NONE, SYMM_OP_NONE, 64, 0, 0},
  };
}

void make_call(const Call& call, Engine& engine) {
  switch (call.form) {
    case Form::kAllReduce:
    case Form::kWindowAllReduce: {
      std::vector<std::byte> data(call.count * dtype_size(call.dtype));
      return engine.all_reduce(call, data.data(), data.data());
    }
    case Form::kBarrier:
      return engine.barrier();
    default:  // waits in the exchange, which is not here
      engine.publish_setup(call);
      for (const Deadline deadline = Deadline::after_ms(10000); !deadline.passed(); usleep(200)) {
        engine.check_setup(call);
      }
  }
}

TEST(Engine, DifferentCallsAreAMismatchOnEveryRankWithBothCalls) {
  const std::vector<Call> calls = different_calls();
  std::mt19937_64 random(seed() + 7);
  for (const int size : {2, 3, 8}) {
    for (const Call& one : calls) {
      for (const Call& other : calls) {
        if (one == other) continue;
        Group group(options_for(size));
        const int odd = static_cast<int>(random() % static_cast<uint64_t>(size));
        const auto outcomes = group.run([&](int rank, Engine& engine) {
          engine.barrier();
          make_call(rank == odd ? one : other, engine);
        });
        expect_all(
            outcomes, SYMM_MISMATCH,
            {call_text(one), call_text(other), text("rank ", odd, " called ", call_text(one))});
        ASSERT_FALSE(HasFailure()) << call_text(one) << " against " << call_text(other);
        EXPECT_EQ(outcomes[0].message, outcomes[1].message);
        ASSERT_TRUE(group.engine(0).fault());
        EXPECT_EQ(group.engine(0).fault()->message, outcomes[0].message);
      }
    }
  }
}

TEST(Engine, CountsThatDifferOnlyAboveThe32ndBitAreAMismatch) {
  Group group(options_for(2));
  const auto outcomes = group.run([&](int rank, Engine& engine) {
    // One rank's record says 2^32 + 2 elements; its word is not posted, as it has not that memory.
    if (rank == 0) return make_call(all_reduce_of(2), engine);
    engine.publish_setup(all_reduce_of((uint64_t{1} << 32) + 2));
    while (!engine.fault()) usleep(100);
  });
  EXPECT_EQ(outcomes[0].status, SYMM_MISMATCH);
  EXPECT_NE(outcomes[0].message.find("4294967298"), std::string::npos) << outcomes[0].message;
}

TEST(Engine, AFailedCommunicatorRefusesLaterCallsAtOnce) {
  Group group(options_for(2));
  group.engine(1).raise({SYMM_ABORTED, 1, "rank 1 called symm_comm_abort"});
  const auto start = Clock::now();
  const auto outcomes = group.run([](int rank, Engine& engine) {
    if (rank == 0) engine.barrier();
    if (rank == 1) engine.publish_setup({Form::kSplit, SYMM_DTYPE_NONE, SYMM_OP_NONE, 0, 0, 0});
  });
  expect_all(outcomes, SYMM_ABORTED, {"rank 1 called symm_comm_abort"});
  EXPECT_EQ(outcomes[0].rank, 1);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(2));
}

TEST(Engine, ATimeoutNamesTheRanksThatDidNotCall) {
  struct Case {
    int size;
    std::vector<int> missing;
    std::string names;
  };
  for (const Case& c :
       {Case{2, {1}, "rank 1,"}, Case{4, {2}, "rank 2,"}, Case{4, {0, 3}, "ranks 0 and 3,"},
        Case{9, {1, 4, 8}, "ranks 1, 4 and 8,"}}) {
    for (const size_t count : {size_t{2}, size_t{100000}}) {
      EngineOptions options = options_for(c.size);
      options.wait_timeout_ms = 60;
      Group group(options);
      const auto start = Clock::now();
      const auto outcomes = group.run([&](int rank, Engine& engine) {
        make_call(all_reduce_of(5), engine);
        if (std::find(c.missing.begin(), c.missing.end(), rank) == c.missing.end()) {
          return make_call(all_reduce_of(count), engine);
        }
        // Not late for the wait of others, but for good.
        while (!engine.fault()) usleep(1000);
        const Fault fault = *engine.fault();
        throw Error(fault.status, fault.message, fault.rank);
      });
      expect_all(outcomes, SYMM_TIMEOUT, {c.names, "60 ms", call_text(all_reduce_of(count))});
      for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.rank, c.missing[0]);
      EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(60));
      EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
    }
  }
}

TEST(Engine, ARankThatStopsInsideACallIsNamedToo) {
  EngineOptions options = options_for(3);
  options.wait_timeout_ms = 60;
  Group group(options);
  const auto outcomes = group.run([](int rank, Engine& engine) {
    if (rank != 1) return make_call(all_reduce_of(7), engine);
    engine.publish_setup(all_reduce_of(7));  // enters the call, posts nothing
  });
  for (const int rank : {0, 2}) {
    EXPECT_EQ(outcomes[rank].status, SYMM_TIMEOUT);
    EXPECT_EQ(outcomes[rank].rank, 1);
    EXPECT_NE(outcomes[rank].message.find("rank 1, which is in the same call"), std::string::npos)
        << outcomes[rank].message;
  }
}

TEST(Engine, ARankThatLeftFailsOnlyCallsThatNeedIt) {
  for (const int size : {2, 3, 8}) {
    Group group(options_for(size));
    const auto start = Clock::now();
    const auto outcomes = group.run([&](int rank, Engine& engine) {
      for (int i = 0; i < 5; ++i) make_call(all_reduce_of(i % 2 == 0 ? 2 : 50000), engine);
      if (rank == 1) return engine.leave();
      make_call(all_reduce_of(9), engine);
    });
    EXPECT_EQ(outcomes[1].status, SYMM_OK);
    EXPECT_TRUE(group.engine(0).has_left(1));
    EXPECT_FALSE(group.engine(1).has_left(0));
    for (int rank = 0; rank < size; ++rank) {
      if (rank == 1) continue;
      EXPECT_EQ(outcomes[rank].status, SYMM_PEER);
      EXPECT_EQ(outcomes[rank].rank, 1);
      EXPECT_NE(outcomes[rank].message.find("rank 1 left"), std::string::npos);
    }
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(10));
  }
}

TEST(Engine, LeavingRightAfterTheLastCallFailsNobody) {
  for (int round = 0; round < 60; ++round) {
    const int size = 2 + round % 7;
    Group group(options_for(size));
    expect_ok(group.run([&](int, Engine& engine) {
      make_call(all_reduce_of(round % 3 == 0 ? 2 : 5000), engine);
      make_call(all_reduce_of(round % 2 == 0 ? 70000 : 100), engine);
      engine.leave();
    }));
  }
}

TEST(Engine, RaiseFromAnotherThreadEndsWaits) {
  for (const bool asleep : {false, true}) {
    Group group(options_for(4));
    Clock::time_point raised;
    std::thread other([&] {
      usleep(asleep ? 200000 : 3000);
      raised = Clock::now();
      group.engine(2).raise({SYMM_ABORTED, 2, "rank 2 called symm_comm_abort"});
    });
    const auto outcomes = group.run([](int rank, Engine& engine) {
      if (rank != 2) make_call(all_reduce_of(10000), engine);
    });
    const auto ended = Clock::now();
    other.join();
    for (const int rank : {0, 1, 3}) {
      EXPECT_EQ(outcomes[rank].status, SYMM_ABORTED);
      EXPECT_EQ(outcomes[rank].rank, 2);
      EXPECT_EQ(outcomes[rank].message, "rank 2 called symm_comm_abort");
    }
    EXPECT_LT(ended - raised, std::chrono::seconds(2));
  }
}

TEST(Engine, ALocalFaultEndsTheWaitsOfEveryRank) {
  Group group(options_for(3));
  std::thread helper([&] {
    usleep(20000);
    group.local_fault(0) = SYMM_PEER;
  });
  const auto outcomes = group.run([](int rank, Engine& engine) {
    if (rank != 1) engine.barrier();
  });
  helper.join();
  for (const int rank : {0, 2}) {
    EXPECT_EQ(outcomes[rank].status, SYMM_PEER);
    EXPECT_NE(outcomes[rank].message.find("SYMM_PEER"), std::string::npos)
        << outcomes[rank].message;
  }
}

TEST(Engine, TheFirstFaultWins) {
  Group group(options_for(2));
  EXPECT_FALSE(group.engine(0).fault());
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      group.engine(i % 2).raise({SYMM_PEER, i, text("fault ", i, std::string(2000, 'x'))});
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::optional<Fault> fault = group.engine(0).fault();
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->status, SYMM_PEER);
  EXPECT_EQ(fault->message.substr(0, 7), text("fault ", fault->rank));
  EXPECT_EQ(fault->message.size(), kFaultText);
  group.engine(1).raise({SYMM_ABORTED, 0, "later"});
  EXPECT_EQ(group.engine(1).fault()->message, fault->message);
}

TEST(Engine, ARaiserThatDiedWhileItWroteCostsOnlyTheText) {
  const EngineOptions options = options_for(2);
  Group group(options);
  Arena arena(group.arena(), arena_layout(options));
  // Being written, SYMM_PEER, rank 1: as raise() leaves it before the text.
  arena.fault().state = uint64_t{2} << 32 | uint64_t{8} << 8 | 1;
  const auto start = Clock::now();
  const std::optional<Fault> fault = group.engine(0).fault();
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(2));
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->status, SYMM_PEER);
  EXPECT_EQ(fault->rank, 1);
  EXPECT_NE(fault->message.find("rank 1"), std::string::npos) << fault->message;
}

TEST(Engine, RecordsAreNeverReadHalfWritten) {
  Mapping memory(sizeof(Record));
  Record& record = *reinterpret_cast<Record*>(memory.data());
  EXPECT_FALSE(read(record));
  EXPECT_FALSE(has_reached(record, 0));
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (uint32_t i = 1; i < 300000; ++i) {
      publish(record, i, {Form::kWindowAllReduce, SYMM_FLOAT32, SYMM_MAX, i, i, i});
      if (i % 100 == 0) std::this_thread::yield();  // whole for a moment, also on one CPU
    }
    done = true;
  });
  uint32_t last = 0;
  int seen = 0;
  while (!done) {
    const std::optional<Published> published = read(record);
    if (!published) continue;
    if (++seen % 100 == 0) std::this_thread::yield();
    const uint64_t epoch = published->epoch;
    EXPECT_GE(epoch, last);
    last = published->epoch;
    ASSERT_EQ(published->call,
              (Call{Form::kWindowAllReduce, SYMM_FLOAT32, SYMM_MAX, epoch, epoch, epoch}));
  }
  writer.join();
  EXPECT_TRUE(has_reached(record, 299999));
  EXPECT_TRUE(has_reached(record, 299998));
  EXPECT_FALSE(has_reached(record, 300000));
  EXPECT_GT(seen, 0);
}

// ---- Processes ----

class Memfd {
 public:
  explicit Memfd(size_t bytes) : fd_(memfd_create("engine_test", MFD_CLOEXEC)) {
    if (fd_ < 0 || ftruncate(fd_, static_cast<off_t>(bytes)) != 0)
      throw std::runtime_error("memfd");
  }
  ~Memfd() { close(fd_); }
  Memfd(const Memfd&) = delete;
  Memfd& operator=(const Memfd&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

// A rank as a process with a mapping of its own; `body` gives the exit status.
pid_t start_rank(const EngineOptions& options, int rank, int fd,
                 const std::function<int(Engine&, std::atomic<int32_t>&)>& body,
                 const std::function<Fault()>& describe = {}) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  int status = 3;
  try {
    EngineOptions own = options;
    own.rank = rank;
    const Mapping mapping(arena_bytes(options), fd);
    std::atomic<int32_t> local_fault{0};
    Engine engine(mapping.data(), own, local_fault, describe);
    status = body(engine, local_fault);
  } catch (const std::exception& error) {
    fprintf(stderr, "rank %d: %s\n", rank, error.what());
  }
  _exit(status);
}

int exit_status(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

TEST(EngineOfProcesses, ReducesAnyMixtureOfCallsInRankOrder) {
  for (const int size : {2, 3, 4, 8}) {
    const EngineOptions options = options_for(size);
    const Memfd arena(arena_bytes(options));
    const auto schedule = random_schedule(seed() + 11, size, size <= 4 ? 100 : 40, 1000000);
    std::vector<pid_t> pids;
    for (int rank = 0; rank < size; ++rank) {
      pids.push_back(
          start_rank(options, rank, arena.fd(), [&](Engine& engine, std::atomic<int32_t>&) {
            for (const Step& step : schedule) {
              const std::string problem = run_step(step, rank, engine);
              if (!problem.empty()) {
                fprintf(stderr, "%s\n", problem.c_str());
                return 1;
              }
            }
            engine.leave();
            return 0;
          }));
    }
    for (const pid_t pid : pids) EXPECT_EQ(exit_status(pid), 0);
  }
}

TEST(EngineOfProcesses, AKilledRankEndsItsPeersWaits) {
  std::mt19937_64 random(seed() + 12);
  for (const int size : {2, 3, 8}) {
    for (int round = 0; round < 5; ++round) {
      EngineOptions options = options_for(size);
      options.wait_timeout_ms = 30000;
      const Memfd arena(arena_bytes(options));
      int lifeline[2];
      ASSERT_EQ(pipe(lifeline), 0);
      const int victim = static_cast<int>(random() % static_cast<uint64_t>(size));
      const auto describe = [victim] {
        return Fault{SYMM_PEER, victim, text("rank ", victim, " died")};
      };
      std::vector<pid_t> pids;
      for (int rank = 0; rank < size; ++rank) {
        pids.push_back(start_rank(
            options, rank, arena.fd(),
            [&](Engine& engine, std::atomic<int32_t>& local_fault) {
              std::thread helper;
              if (rank != victim) {
                close(lifeline[1]);
                helper = std::thread([&] {
                  char byte;
                  while (::read(lifeline[0], &byte, 1) > 0) {
                  }
                  local_fault = SYMM_PEER;  // end of file: only the victim had the other end
                });
              }
              int status = 1;
              try {
                for (int i = 0;; ++i) make_call(all_reduce_of(i % 3 == 0 ? 4 : 40000), engine);
              } catch (const Error& error) {
                const bool right = error.status() == SYMM_PEER && error.rank() == victim &&
                                   error.what() == text("rank ", victim, " died");
                status = right ? 0 : 2;
                if (!right) fprintf(stderr, "rank %d: %s\n", rank, error.what());
              }
              helper.join();
              return status;
            },
            describe));
      }
      close(lifeline[1]);
      usleep(static_cast<useconds_t>(2000 + random() % 30000));
      kill(pids[victim], SIGKILL);
      const auto start = Clock::now();
      for (int rank = 0; rank < size; ++rank) {
        EXPECT_EQ(exit_status(pids[rank]), rank == victim ? 1000 + SIGKILL : 0);
      }
      EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
      close(lifeline[0]);
    }
  }
}

// ---- Layout and table ----

TEST(Arena, LaysOutUpToAThousandRanksWithoutOverlap) {
  for (const bool oversubscribed : {false, true}) {
    for (const int size : {1, 2, 3, 4, 7, 8, 9, 16, 64, 128, 1000, 1024}) {
      EngineOptions options = options_for(size);
      options.oversubscribed = oversubscribed;
      const ArenaLayout layout = arena_layout(options);
      EXPECT_LE(layout.total, options.scratch_bytes * static_cast<size_t>(size));
      EXPECT_EQ(layout.total, arena_bytes(options));
      EXPECT_EQ(layout.total % kPageBytes, 0u);
      const size_t base = 1 << 20;
      const Arena arena(reinterpret_cast<std::byte*>(base), layout);
      const auto at = [base](const void* p) { return reinterpret_cast<size_t>(p) - base; };
      // Ranges in the order of the layout: each starts where the one before has ended.
      size_t end = 0;
      const auto next = [&end, &at](const void* p, size_t bytes) {
        EXPECT_GE(at(p), end);
        end = at(p) + bytes;
      };
      next(&arena.fault(), sizeof(FaultBlock));
      for (int r = 0; r < size; ++r) next(&arena.doorbell(r), sizeof(uint32_t));
      for (int r = 0; r < size; ++r) next(&arena.record(r), sizeof(Record));
      if (size > 2) {
        for (int bank = 0; bank < 2; ++bank) {
          for (int r = 0; r < size; ++r) next(&arena.line(bank, r), sizeof(WordLine));
        }
      }
      if (layout.areas.slot_operand != 0) {
        for (int r = 0; r < size; ++r) next(&arena.slot_words(r), sizeof(SlotWords));
      }
      if (layout.areas.line_payload != 0) {
        for (int bank = 0; bank < 2; ++bank) {
          for (int r = 0; r < size; ++r)
            next(arena.line_payload(bank, r), layout.areas.line_payload);
        }
      }
      if (layout.areas.box_payload != 0) {
        for (int a = 0; a < size; ++a) {
          for (int b = a + 1; b < size; ++b) {
            for (int which = 0; which < 2; ++which) {
              const Box box = arena.box(b, a, which);
              EXPECT_EQ(box.line, arena.box(a, b, which).line);
              next(box.line, sizeof(WordLine));
              next(box.data, layout.areas.box_payload);
            }
          }
        }
      }
      if (layout.areas.slot_operand != 0) {
        for (int r = 0; r < size; ++r) {
          for (int bank = 0; bank < 2; ++bank)
            next(arena.slot_operand(bank, r), layout.areas.slot_operand);
          for (int bank = 0; bank < 2; ++bank) next(arena.slot_result(bank, r), layout.slot_result);
        }
      }
      EXPECT_LE(end, layout.total);
    }
  }
}

TEST(Arena, IsSmallForFewRanks) {
  EXPECT_LE(arena_bytes(options_for(1)), size_t{8} << 10);
  EXPECT_LE(arena_bytes(options_for(2)), size_t{2} << 20);
  EXPECT_LE(arena_bytes(options_for(4)), size_t{4} << 20);
  EXPECT_LE(arena_bytes(options_for(64)), size_t{64} << 20);
}

TEST(Arena, IsTheSameForEveryRank) {
  for (int rank = 0; rank < 5; ++rank) {
    EngineOptions options = options_for(5);
    options.rank = rank;
    EXPECT_EQ(arena_bytes(options), arena_bytes(options_for(5)));
  }
}

TEST(Table, CoversEverySizeWithRisingLimits) {
  for (const int size : {1, 2, 3, 5, 8, 64}) {
    Group group(options_for(size));
    const auto rows = group.engine(0).table();
    ASSERT_FALSE(rows.empty());
    size_t last = 0;
    for (const Engine::TableRow& row : rows) {
      EXPECT_GT(row.up_to_bytes, last);
      last = row.up_to_bytes;
      if (row.up_to_bytes != SIZE_MAX) {
        EXPECT_EQ(group.engine(0).plan(all_reduce_of(row.up_to_bytes / 4)).algorithm,
                  row.algorithm);
        EXPECT_NE(group.engine(0).plan(all_reduce_of(row.up_to_bytes / 4 + 1)).algorithm,
                  row.algorithm);
      }
    }
    EXPECT_EQ(last, SIZE_MAX);
    EXPECT_EQ(group.engine(0).plan(all_reduce_of(uint64_t{1} << 40)).algorithm,
              rows.back().algorithm);
  }
}

TEST(Table, TakesTheExpectedAlgorithms) {
  Group two(options_for(2));
  EXPECT_EQ(two.engine(0).plan(all_reduce_of(2)).algorithm, "box_inline");
  EXPECT_EQ(two.engine(0).plan(all_reduce_of(256)).algorithm, "box_one_shot");
  EXPECT_EQ(two.engine(0).plan(all_reduce_of(1 << 20)).algorithm, "box_reduce_scatter");
  EXPECT_EQ(two.engine(0).plan({}).algorithm, "box_inline");
  Group many(options_for(16));
  EXPECT_EQ(many.engine(0).plan(all_reduce_of(2)).algorithm, "line");
  EXPECT_EQ(many.engine(0).plan(all_reduce_of(1 << 20)).algorithm, "slot_reduce_scatter");
  Group one(options_for(1));
  EXPECT_EQ(one.engine(0).plan(all_reduce_of(1 << 20)).algorithm, "copy");
}

TEST(Table, APlanSaysWhatScratchAndCpusCost) {
  EngineOptions options = options_for(2);
  options.scratch_bytes = 8192;
  Group tight(options);
  const Engine::Plan plan = tight.engine(0).plan(all_reduce_of(8000));
  EXPECT_EQ(plan.algorithm, "box_reduce_scatter");
  ASSERT_EQ(plan.faster.size(), 1u);
  EXPECT_EQ(plan.faster[0].algorithm, "box_one_shot");
  EXPECT_NE(plan.faster[0].why_not.find("scratch_bytes 8192"), std::string::npos);

  options = options_for(4);
  options.oversubscribed = true;
  Group crowded(options);
  const Engine::Plan slow = crowded.engine(0).plan(all_reduce_of(2));
  ASSERT_FALSE(slow.faster.empty());
  EXPECT_NE(slow.faster[0].why_not.find("outnumber the CPUs"), std::string::npos);
}

}  // namespace
}  // namespace symm::cpu
