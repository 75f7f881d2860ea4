// The random all-reduces of the stress tests: right on CPU ranks, and no byte may be wrong unseen.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>

#include "tests/support/calls.h"
#include "tests/support/reference.h"
#include "tests/support/stress.h"

namespace symm_test {
namespace {

constexpr Room kMost{8 << 20, 8 << 20};

struct Aligned {
  explicit Aligned(size_t bytes)
      : memory(static_cast<std::byte*>(std::aligned_alloc(256, (bytes + 511) / 256 * 256))) {}
  ~Aligned() { std::free(memory); }
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;
  std::byte* const memory;
};

// `own` and window memory on the host.
struct Image {
  explicit Image(Room room) : own(room.own), window(room.window) {}
  Memory memory() const { return {own.memory, window.memory}; }
  Aligned own, window;
};

void blocks(Rank& rank) {
  const uint64_t seed = std::stoull(rank.argument);
  const Patterns patterns(seed, rank.size);
  const Comm comm = create(rank);
  ASSERT_TRUE(comm);
  const Window window = alloc(comm.get(), kMost.window);
  ASSERT_TRUE(window);
  const Image memory(kMost), expected(kMost);
  const Memory here{memory.own.memory, data_as<std::byte>(window.get(), rank.rank)};
  std::mt19937_64 random(seed);
  uint64_t operations = 0;
  for (uint64_t turn = 0; turn < 30u / kSlowdown + 2; ++turn) {
    const Block block(random, rank.rank, 20, kMost);
    // Twice the same calls with other data, as a graph makes them.
    for (const uint64_t again : {2 * turn, 2 * turn + 1}) {
      block.before(patterns, again, here);
      block.before(patterns, again, expected.memory());
      block.after(patterns, again, expected.memory());
      for (const Step& step : block.steps()) {
        std::byte* const output = (step.writes_window() ? here.window : here.own) + step.output;
        ASSERT_TRUE(ok(step.reads_window()
                           ? symm_window_all_reduce(window.get(), step.input, output, step.count,
                                                    step.dtype, step.op, nullptr)
                           : symm_all_reduce(comm.get(), here.own + step.input, output, step.count,
                                             step.dtype, step.op, nullptr)))
            << step.text();
      }
      ASSERT_EQ("", block.difference(here, expected.memory())) << "turn " << again;
      operations += block.steps().size();
    }
  }
  rank.give(std::to_string(operations));
}

TEST(StressBlocks, OnCpuRanksEverythingIsAsItWasWorkedOut) {
  for (const Layout layout : {processes(2), threads(2), mixed(2, 2)}) {
    RunOptions options;
    options.seconds = 60;
    options.argument = std::to_string(stress_seed());
    SCOPED_TRACE("SYMM_STRESS_SEED=" + options.argument);
    const auto given = run(layout, blocks, options);
    for (const auto& of_rank : given) EXPECT_EQ(of_rank, given[0]);
  }
}

TEST(StressBlocks, AWrongByteIsFoundWhereverItIs) {
  const Patterns patterns(7, 2);
  std::mt19937_64 random(7);
  const Block block(random, 1, 12, {1 << 20, 1 << 20});
  const Room room = block.room();
  const Image got(room), expected(room);
  for (const Image* image : {&got, &expected}) {
    block.before(patterns, 3, image->memory());
    block.after(patterns, 3, image->memory());
  }
  ASSERT_EQ("", block.difference(got.memory(), expected.memory()));
  for (const bool in_window : {false, true}) {
    std::byte* const memory = in_window ? got.window.memory : got.own.memory;
    const size_t bytes = in_window ? room.window : room.own;
    size_t canaries = 0, inputs = 0, outputs = 0;
    for (size_t at = 0; at < bytes; at += at < 4096 ? 1 : 1 + random() % 701) {
      memory[at] ^= std::byte{1};
      const std::string said = block.difference(got.memory(), expected.memory());
      EXPECT_NE(std::string::npos, said.find("1 bytes are wrong")) << said;
      EXPECT_NE(std::string::npos, said.find(in_window ? "the window" : "private memory")) << said;
      canaries += said.find("is a canary") != std::string::npos;
      inputs += said.find("is in the input") != std::string::npos;
      outputs += said.find("is in the output") != std::string::npos;
      memory[at] ^= std::byte{1};
    }
    EXPECT_LT(0u, canaries);
    EXPECT_LT(0u, inputs);
    EXPECT_LT(0u, outputs);
  }
}

// A result that was left out, that of another turn, another rank's input: none of them passes.
TEST(StressBlocks, OldAndMissingResultsAreFound) {
  const Patterns patterns(9, 2);
  std::mt19937_64 random(9);
  const Block block(random, 0, 12, kMost);
  const Image got(block.room()), expected(block.room());
  block.before(patterns, 1, expected.memory());
  block.before(patterns, 1, got.memory());
  block.after(patterns, 1, expected.memory());
  EXPECT_NE("", block.difference(got.memory(), expected.memory()));
  block.after(patterns, 0, got.memory());
  EXPECT_NE("", block.difference(got.memory(), expected.memory()));
}

TEST(StressBlocks, PatternsRepeatWithAPeriodThatIsAPrime) {
  const Patterns patterns(5, 3);
  for (const symm_dtype dtype : kAllDtypes) {
    const size_t element = size_of(dtype);
    const size_t count = Patterns::kPeriod + 1000, start = Patterns::kPeriod - 77;
    std::vector<std::vector<std::byte>> inputs(3, std::vector<std::byte>(count * element));
    std::vector<const void*> pointers;
    for (int rank = 0; rank < 3; ++rank) {
      auto& input = inputs[static_cast<size_t>(rank)];
      patterns.input(input.data(), rank, dtype, start, input.size());
      pointers.push_back(input.data());
    }
    for (const symm_op op : kAllOps) {
      std::vector<std::byte> result(count * element);
      patterns.result(result.data(), dtype, op, start, result.size());
      // Bit for bit: there is no NaN.
      EXPECT_EQ(reference(pointers, count, dtype, op), result) << name_of(dtype) << name_of(op);
    }
  }
}

}  // namespace
}  // namespace symm_test
