// Ranks of an engine as threads, and random schedules of calls with the results they must have.
#ifndef SYMM_TESTS_UNIT_ENGINE_GROUP_H_
#define SYMM_TESTS_UNIT_ENGINE_GROUP_H_

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/cpu/engine.h"
#include "core/deadline.h"
#include "core/types.h"

namespace symm::cpu {

constexpr size_t kCanary = 64;

// SYMM_TEST_SEED repeats a run.
inline uint64_t seed() {
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

inline EngineOptions options_for(int size) {
  EngineOptions options;
  options.size = size;
  options.level = best_level();
  options.oversubscribed = size > 2;
  options.wait_timeout_ms = 60000;
  return options;
}

inline Call all_reduce_of(uint64_t count, symm_dtype dtype = SYMM_FLOAT32, symm_op op = SYMM_SUM) {
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

inline void expect_ok(const std::vector<Outcome>& outcomes) {
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    EXPECT_EQ(outcomes[rank].status, SYMM_OK) << "rank " << rank << ": " << outcomes[rank].message;
  }
}

inline void expect_all(const std::vector<Outcome>& outcomes, symm_status status,
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
inline std::vector<std::byte> input_of(const Step& step, int rank) {
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

inline void expect_result_of(Step* step, int size) {
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

inline Step random_step(std::mt19937_64& random, int size, size_t most_bytes) {
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

inline std::vector<Step> random_schedule(uint64_t seed, int size, int steps, size_t most_bytes) {
  std::mt19937_64 random(seed);
  std::vector<Step> schedule;
  for (int i = 0; i < steps; ++i) schedule.push_back(random_step(random, size, most_bytes));
  return schedule;
}

// "" or what was wrong.
inline std::string run_step(const Step& step, int rank, Engine& engine) {
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

inline void run_schedule(const EngineOptions& options, const std::vector<Step>& schedule,
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

inline void make_call(const Call& call, Engine& engine) {
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

}  // namespace symm::cpu

#endif  // SYMM_TESTS_UNIT_ENGINE_GROUP_H_
