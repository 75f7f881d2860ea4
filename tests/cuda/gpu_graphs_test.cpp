// CUDA graphs and several streams on one communicator.
#include <cstring>

#include "tests/cuda/gpu.h"
#include "tests/support/reference.h"

namespace symm_test {
namespace {

constexpr size_t kCount = 3000;

std::vector<int32_t> values_of(int rank, int turn, size_t count = kCount) {
  std::vector<int32_t> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = static_cast<int32_t>(
        mix(static_cast<uint64_t>(turn) * 64 + static_cast<uint64_t>(rank)) + i);
  }
  return values;
}

void expect_sum(const Rank& rank, const std::vector<std::byte>& got, int turn, const char* what) {
  for (size_t i = 0; i < kCount; ++i) {
    uint32_t expected = 0;
    for (int r = 0; r < rank.size; ++r) {
      expected += static_cast<uint32_t>(
          mix(static_cast<uint64_t>(turn) * 64 + static_cast<uint64_t>(r)) + i);
    }
    uint32_t value;
    std::memcpy(&value, got.data() + i * 4, 4);
    ASSERT_EQ(expected, value) << what << ", turn " << turn << ", element " << i;
  }
}

// Thousands of replays with changing data, several graphs and eager calls between them, on one
// stream: each result compared.
void replays(Rank& rank) {
  const Comm comm = create_on_gpu(rank);
  ASSERT_TRUE(comm);
  const Window window = alloc(comm.get(), kCount * 4);
  ASSERT_TRUE(window);
  const GpuStream stream;
  Buffer input(kCount * 4), first(kCount * 4), second(kCount * 4), third(kCount * 4);
  const auto reduce = [&](std::byte* in, std::byte* out) {
    ASSERT_TRUE(ok(symm_all_reduce(comm.get(), in, out, kCount, SYMM_INT32, SYMM_SUM, stream)));
  };
  const auto reduce_window = [&](std::byte* out) {
    ASSERT_TRUE(
        ok(symm_window_all_reduce(window.get(), 0, out, kCount, SYMM_INT32, SYMM_SUM, stream)));
  };
  const Graph both(stream, [&] {
    reduce(input.data(), first.data());
    reduce_window(second.data());
  });
  const Graph one(stream, [&] { reduce(input.data(), third.data()); });
  for (int turn = 0; turn < 2000; ++turn) {
    const auto mine = values_of(rank.rank, turn);
    input.set(mine.data(), kCount * 4);
    write_gpu(data(window.get(), rank.rank), mine.data(), kCount * 4);
    both.launch(stream);
    one.launch(stream);
    if (turn % 3 == 0) {
      first.fill(0);
      reduce(input.data(), first.data());
    }
    stream.synchronize();
    expect_sum(rank, first.get(), turn, "all-reduce");
    expect_sum(rank, second.get(), turn, "window");
    expect_sum(rank, third.get(), turn, "second graph");
    if (testing::Test::HasFatalFailure()) return;
  }
  ASSERT_TRUE(ok(symm_comm_check(comm.get(), nullptr)));
}

// Many operations in one graph, which run as dependent launches behind each other.
void chains(Rank& rank) {
  const Comm comm = create_on_gpu(rank);
  ASSERT_TRUE(comm);
  const GpuStream stream;
  Buffer a(kCount * 4), b(kCount * 4);
  const auto ones = std::vector<int32_t>(kCount, 1);
  const Graph graph(stream, [&] {
    for (int i = 0; i < 5; ++i) {
      ASSERT_TRUE(ok(
          symm_all_reduce(comm.get(), a.data(), b.data(), kCount, SYMM_INT32, SYMM_SUM, stream)));
      ASSERT_TRUE(ok(
          symm_all_reduce(comm.get(), b.data(), a.data(), kCount, SYMM_INT32, SYMM_SUM, stream)));
    }
  });
  uint32_t expected = 1;
  for (int i = 0; i < 10; ++i) expected *= static_cast<uint32_t>(rank.size);
  for (int turn = 0; turn < 300; ++turn) {
    a.set(ones.data(), kCount * 4);
    graph.launch(stream);
    stream.synchronize();
    const auto got = a.get();
    for (size_t i = 0; i < kCount; ++i) {
      uint32_t value;
      std::memcpy(&value, got.data() + i * 4, 4);
      ASSERT_EQ(expected, value) << turn << " " << i;
    }
  }
}

// One capture whose calls are on streams that fork from its first and join it again: the library
// chains them, as each call's input is the output of the one before.
void capture_over_streams(Rank& rank) {
  const Comm comm = create_on_gpu(rank);
  ASSERT_TRUE(comm);
  const GpuStream first, second, third;
  const GpuStream* const streams[] = {&first, &second, &third};
  const GpuEvent forks[2], joins[2];
  Buffer a(kCount * 4), b(kCount * 4);
  const auto ones = std::vector<int32_t>(kCount, 1);
  constexpr int kCalls = 9;
  const Graph graph(first, [&] {
    for (int i = 0; i < 2; ++i) forks[i].order(first, *streams[i + 1]);
    for (int i = 0; i < kCalls; ++i) {
      ASSERT_TRUE(ok(symm_all_reduce(comm.get(), i % 2 == 0 ? a.data() : b.data(),
                                     i % 2 == 0 ? b.data() : a.data(), kCount, SYMM_INT32, SYMM_SUM,
                                     *streams[(i * 2 + rank.rank) % 3])));
    }
    for (int i = 0; i < 2; ++i) joins[i].order(*streams[i + 1], first);
  });
  uint32_t expected = 1;
  for (int i = 0; i < kCalls; ++i) expected *= static_cast<uint32_t>(rank.size);
  for (int turn = 0; turn < 100; ++turn) {
    a.set(ones.data(), kCount * 4);
    graph.launch(first);
    first.synchronize();
    const auto got = b.get();
    for (size_t i = 0; i < kCount; ++i) {
      uint32_t value;
      std::memcpy(&value, got.data() + i * 4, 4);
      ASSERT_EQ(expected, value) << turn << " " << i;
    }
  }
  ASSERT_TRUE(ok(symm_comm_check(comm.get(), nullptr)));
}

// The graph keeps the window and the communicator, whose handles are gone.
void replay_after_free(Rank& rank) {
  Comm comm = create_on_gpu(rank);
  ASSERT_TRUE(comm);
  Window window = alloc(comm.get(), kCount * 4);
  ASSERT_TRUE(window);
  const GpuStream stream;
  Buffer output(kCount * 4);
  const auto mine = values_of(rank.rank, 1);
  write_gpu(data(window.get(), rank.rank), mine.data(), kCount * 4);
  {
    const Graph graph(stream, [&] {
      ASSERT_TRUE(ok(symm_window_all_reduce(window.get(), 0, output.data(), kCount, SYMM_INT32,
                                            SYMM_SUM, stream)));
    });
    window.reset();
    comm.reset();
    for (int turn = 0; turn < 100; ++turn) {
      output.fill(0);
      graph.launch(stream);
      stream.synchronize();
      expect_sum(rank, output.get(), 1, "replay after free");
      if (testing::Test::HasFatalFailure()) return;
    }
  }
  // The rank has left with its graph, and can come again.
  const Comm again = create_on_gpu(rank, gpu_options("again"));
  ASSERT_TRUE(again);
}

// Freed at once behind the enqueueing.
void free_behind(Rank& rank) {
  for (int turn = 0; turn < 20; ++turn) {
    Comm comm = create_on_gpu(rank, gpu_options(("turn" + std::to_string(turn)).c_str()));
    ASSERT_TRUE(comm);
    const GpuStream own;
    Buffer buffer(kCount * 4), output(kCount * 4);
    const auto mine = values_of(rank.rank, turn);
    buffer.set(mine.data(), kCount * 4);
    for (int i = 0; i < 10; ++i) {
      ASSERT_TRUE(ok(symm_all_reduce(comm.get(), buffer.data(), output.data(), kCount, SYMM_INT32,
                                     SYMM_SUM, own)));
    }
    comm.reset();
    own.synchronize();
    expect_sum(rank, output.get(), turn, "freed behind the call");
  }
}

// Eager calls on streams chosen at random, differently on every rank: the library orders them.
//
// Ranks of a process that share a GPU keep to two streams each: CUDA deals streams out to a
// context's hardware queues (CUDA_DEVICE_MAX_CONNECTIONS), and an operation that lies behind
// another rank's in one queue, which waits for it, would end with the deadline.
void streams(Rank& rank) {
  const Comm comm = create_on_gpu(rank);
  ASSERT_TRUE(comm);
  std::vector<std::unique_ptr<GpuStream>> many;
  const bool shares = rank.argument == "shared";
  for (int i = 0; i < (shares ? 2 : 4); ++i) many.push_back(std::make_unique<GpuStream>());
  std::vector<Buffer> inputs, outputs;
  constexpr int kOps = 64;
  for (int i = 0; i < kOps; ++i) {
    inputs.emplace_back(kCount * 4);
    outputs.emplace_back(kCount * 4);
  }
  for (int round = 0; round < 30; ++round) {
    for (int i = 0; i < kOps; ++i) {
      const auto mine = values_of(rank.rank, round * kOps + i);
      inputs[static_cast<size_t>(i)].set(mine.data(), kCount * 4);
    }
    for (int i = 0; i < kOps; ++i) {
      const auto index =
          mix(static_cast<uint64_t>(rank.rank * 7919 + round * kOps + i)) % many.size();
      // A stream that ends while its work runs, and another in its place.
      if (!shares && i % 16 == 5) many[index] = std::make_unique<GpuStream>();
      ASSERT_TRUE(ok(symm_all_reduce(comm.get(), inputs[static_cast<size_t>(i)].data(),
                                     outputs[static_cast<size_t>(i)].data(), kCount, SYMM_INT32,
                                     SYMM_SUM, *many[index])));
    }
    ASSERT_TRUE(ok(symm_comm_barrier(comm.get(), *many[0])));
    many[0]->synchronize();
    for (int i = 0; i < kOps; ++i) {
      expect_sum(rank, outputs[static_cast<size_t>(i)].get(), round * kOps + i, "streams");
      if (testing::Test::HasFatalFailure()) return;
    }
  }
  ASSERT_TRUE(ok(symm_comm_check(comm.get(), nullptr)));
}

void legacy_stream(Rank& rank) {
  const Comm comm = create_on_gpu(rank);
  ASSERT_TRUE(comm);
  Buffer input(kCount * 4), output(kCount * 4);
  const auto mine = values_of(rank.rank, 3);
  input.set(mine.data(), kCount * 4);
  ASSERT_TRUE(ok(symm_all_reduce(comm.get(), input.data(), output.data(), kCount, SYMM_INT32,
                                 SYMM_SUM, nullptr)));
  const GpuStream stream;
  ASSERT_TRUE(ok(symm_comm_barrier(comm.get(), stream)));
  stream.synchronize();
  expect_sum(rank, output.get(), 3, "the legacy default stream");
}

class GpuGraphs : public testing::TestWithParam<Layout> {
 protected:
  void SetUp() override {
    NEEDS_GPUS(GetParam().processes);
    NEEDS_LAUNCHES_OF(GetParam());
  }
};
TEST_P(GpuGraphs, ThousandsOfReplays) { run(GetParam(), replays, gpu_run(110)); }
TEST_P(GpuGraphs, ChainsOfDependentLaunches) { run(GetParam(), chains, gpu_run(60)); }
TEST_P(GpuGraphs, ACaptureOverSeveralStreamsIsAChain) {
  if (GetParam().threads > gpu_count()) {
    GTEST_SKIP() << "a graph's branches take queues of their own, and ranks that share a GPU could "
                    "come to lie behind each other";
  }
  run(GetParam(), capture_over_streams, gpu_run(60));
}
TEST_P(GpuGraphs, ReplayAfterFree) { run(GetParam(), replay_after_free, gpu_run(60)); }
TEST_P(GpuGraphs, FreedBehindTheCalls) { run(GetParam(), free_behind, gpu_run(60)); }
TEST_P(GpuGraphs, EagerCallsOnManyStreams) {
  RunOptions options = gpu_run(60);
  if (GetParam().threads > gpu_count()) options.argument = "shared";
  run(GetParam(), streams, options);
}
TEST_P(GpuGraphs, TheLegacyDefaultStream) {
  if (GetParam().threads > 1 && GetParam().threads > gpu_count()) {
    GTEST_SKIP() << "ranks that are threads on one GPU would share the one legacy default stream, "
                    "and wait for each other in it";
  }
  run(GetParam(), legacy_stream, gpu_run(60));
}
INSTANTIATE_TEST_SUITE_P(Ranks, GpuGraphs, testing::Values(threads(2), threads(4), processes(2)),
                         [](const testing::TestParamInfo<Layout>& info) {
                           return std::to_string(info.param.processes) + "x" +
                                  std::to_string(info.param.threads);
                         });

}  // namespace
}  // namespace symm_test
