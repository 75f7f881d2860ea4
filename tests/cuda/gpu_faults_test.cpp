// What ends a communicator on GPUs, what its ranks are told, and that the context lives on.
#include <signal.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

#include "tests/cuda/gpu.h"

namespace symm_test {
namespace {

constexpr int kErrorMs = 1000;  // from the end of a stream to the error that ended it
constexpr int kSoon = 2000;     // ms: the wait deadline of tests whose point is not the deadline

void expect_works(const Rank& rank, symm_comm* comm, const GpuStream& stream) {
  Buffer one(64);
  const float value = 1;
  one.set(&value, sizeof value);
  ASSERT_TRUE(ok(symm_all_reduce(comm, one.data(), one.data(), 1, SYMM_FLOAT32, SYMM_SUM, stream)));
  stream.synchronize();
  EXPECT_TRUE(ok(symm_comm_check(comm, nullptr)));
  float sum = 0;
  std::memcpy(&sum, one.get().data(), sizeof sum);
  EXPECT_EQ(static_cast<float>(rank.size), sum);
}

// What each rank calls, by number.
constexpr int kCalls = 9;
symm_status call_number(int number, symm_comm* comm, symm_window* window, Buffer& in, Buffer& out,
                        const GpuStream& stream) {
  switch (number) {
    case 0:
      return symm_comm_barrier(comm, stream);
    case 1:
      return symm_all_reduce(comm, in.data(), out.data(), 16, SYMM_FLOAT32, SYMM_SUM, stream);
    case 2:
      return symm_all_reduce(comm, in.data(), out.data(), 17, SYMM_FLOAT32, SYMM_SUM, stream);
    case 3:
      return symm_all_reduce(comm, in.data(), out.data(), 16, SYMM_INT32, SYMM_SUM, stream);
    case 4:
      return symm_all_reduce(comm, in.data(), out.data(), 16, SYMM_FLOAT32, SYMM_MAX, stream);
    case 5:
      return symm_all_reduce(comm, in.data(), out.data(), 100000, SYMM_FLOAT32, SYMM_SUM, stream);
    case 6:
      return symm_all_reduce(comm, in.data(), out.data(), 2000000, SYMM_FLOAT32, SYMM_SUM, stream);
    case 7:
      return symm_window_all_reduce(window, 0, out.data(), 16, SYMM_FLOAT32, SYMM_SUM, stream);
    default:
      return symm_window_all_reduce(window, 64, out.data(), 16, SYMM_FLOAT32, SYMM_SUM, stream);
  }
}

void every_pair(Rank& rank) {
  use_gpu(gpu_of(rank));
  const GpuStream stream;
  Buffer in(8000000), out(8000000);
  for (int a = 0; a < kCalls; ++a) {
    for (int b = 0; b < kCalls; ++b) {
      if (a == b) continue;
      const std::string name = "pair " + std::to_string(a) + " " + std::to_string(b);
      rank.at(name);
      const Comm comm = create_on_gpu(rank, gpu_options(name.c_str(), 0, kSoon));
      ASSERT_TRUE(comm);
      const Window window = alloc(comm.get(), 4096);
      ASSERT_TRUE(window);
      // One good call first, so that the epoch is another.
      ASSERT_TRUE(ok(symm_comm_barrier(comm.get(), stream)));
      ASSERT_TRUE(
          ok(call_number(rank.rank == 0 ? a : b, comm.get(), window.get(), in, out, stream)));
      stream.synchronize();
      // The message names both calls.
      EXPECT_EQ(SYMM_MISMATCH, wait_for_error(comm.get(), nullptr, kErrorMs))
          << name << ": " << symm_last_error();
      EXPECT_NE(nullptr, std::strstr(symm_last_error(), "called")) << symm_last_error();
      EXPECT_TRUE(fails(SYMM_MISMATCH, symm_comm_barrier(comm.get(), stream)));
    }
  }
  EXPECT_TRUE(gpu_works());
}

// Enqueues a call that the last rank never makes. With "held" behind what ends the wait, this
// thread is then in a cudaFree, which waits for the kernel and lets no other thread into the
// driver.
void wait_for_the_last(Rank& rank) {
  const bool absent = rank.rank == rank.size - 1;
  const std::string how = rank.argument.substr(0, rank.argument.find(' '));
  const bool held = how != rank.argument;
  // A launch that blocks may keep the driver from carrying another cause to the GPU.
  const int deadline = how == "timeout" ? 500 : launches_block() ? 3000 : 60000;
  Comm comm = create_on_gpu(rank, gpu_options(nullptr, 0, deadline));
  ASSERT_TRUE(comm);
  const GpuStream stream;
  Buffer buffer(1 << 20);
  buffer.fill(0);
  auto unused = std::make_unique<OwnAllocation>(1 << 20);
  ASSERT_TRUE(ok(symm_comm_barrier(comm.get(), stream)));
  stream.synchronize();
  if (launches_block()) rank.at("enqueued");  // as good as: the call returns when all is over
  if (!absent) {
    ASSERT_TRUE(ok(symm_all_reduce(comm.get(), buffer.data(), buffer.data(), 1 << 18, SYMM_FLOAT32,
                                   SYMM_SUM, stream)));
  }
  rank.at("enqueued");
  if (absent) {
    if (how == "leave") comm.reset();
    if (how == "abort") {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      const auto start = std::chrono::steady_clock::now();
      ASSERT_TRUE(ok(symm_comm_abort(comm.get())));
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(200));
    }
    rank.hear();
    return;
  }
  const auto start = std::chrono::steady_clock::now();
  if (held) unused.reset();
  stream.synchronize();
  const auto waited = std::chrono::steady_clock::now() - start;
  EXPECT_LT(waited, std::chrono::seconds(held ? 3 : 15));
  const symm_status expected = how == "timeout" ? SYMM_TIMEOUT
                               : how == "abort" ? SYMM_ABORTED
                                                : SYMM_PEER;
  int32_t blamed = -1;
  const symm_status status = symm_comm_check(comm.get(), &blamed);
  // Whichever is known first, where the deadline is what has ended the kernel.
  const bool by_deadline = launches_block() && status == SYMM_TIMEOUT;
  EXPECT_TRUE(fails(by_deadline ? SYMM_TIMEOUT : expected, status,
                    {"rank " + std::to_string(rank.size - 1)}));
  EXPECT_EQ(rank.size - 1, blamed);
  EXPECT_TRUE(fails(status, symm_comm_barrier(comm.get(), stream)));
  EXPECT_TRUE(gpu_works());
  rank.at("told");
}

void end_of_the_last(Layout layout, const std::string& how) {
  RunOptions options = gpu_run(50);
  options.argument = how;
  Ranks ranks(layout, wait_for_the_last, options);
  const int last = layout.ranks() - 1;
  ASSERT_TRUE(ranks.wait_for_all("enqueued"));
  const bool dies = how.rfind("die", 0) == 0;
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  if (dies) ranks.signal(last, SIGKILL);
  for (int rank = 0; rank < last; ++rank) ASSERT_TRUE(ranks.wait_for(rank, "told"));
  if (!dies) ranks.tell(last, "go");
  EXPECT_TRUE(ranks.finish());
}

// A graph that waits for a rank that has died ends too, and so does every later replay.
void replays_after_a_fault(Rank& rank) {
  const Comm comm = create_on_gpu(rank, gpu_options(nullptr, 0, 500));
  ASSERT_TRUE(comm);
  const Comm other = create_on_gpu(rank, gpu_options("other"));
  ASSERT_TRUE(other);
  const GpuStream stream;
  Buffer buffer(4096);
  buffer.fill(0);
  const Graph graph(stream, [&] {
    for (int i = 0; i < 20; ++i) {
      ASSERT_TRUE(ok(symm_all_reduce(comm.get(), buffer.data(), buffer.data(), 16, SYMM_FLOAT32,
                                     SYMM_SUM, stream)));
    }
  });
  if (rank.rank == 0) {
    graph.launch(stream);  // alone
    stream.synchronize();
  }
  EXPECT_EQ(SYMM_TIMEOUT, wait_for_error(comm.get(), nullptr, 10000)) << symm_last_error();
  // The abort word is on its way to this GPU, or there.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 10; ++i) graph.launch(stream);
  stream.synchronize();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(200));
  // Other communicators of the process go on.
  expect_works(rank, other.get(), stream);
}

// Graphs, or a graph and eager calls, on two streams of one communicator: their order, which is
// their caller's duty, is another on rank 0. The calls are alike in all but their form.
void order_that_differs(Rank& rank) {
  const bool eager = rank.argument == "eager";
  const Comm comm = create_on_gpu(rank, gpu_options(nullptr, 0, kSoon));
  ASSERT_TRUE(comm);
  const Comm other = create_on_gpu(rank, gpu_options("other"));
  ASSERT_TRUE(other);
  constexpr size_t kCount = 3000;
  const Window window = alloc(comm.get(), kCount * sizeof(float));
  ASSERT_TRUE(window);
  const GpuStream first, second;
  const GpuEvent event;
  Buffer buffer(kCount * sizeof(float)), output(kCount * sizeof(float));
  buffer.fill(0);
  const auto reduce = [&](const GpuStream& stream) {
    return symm_all_reduce(comm.get(), buffer.data(), buffer.data(), kCount, SYMM_FLOAT32, SYMM_SUM,
                           stream);
  };
  const auto reduce_window = [&](const GpuStream& stream) {
    return symm_window_all_reduce(window.get(), 0, output.data(), kCount, SYMM_FLOAT32, SYMM_SUM,
                                  stream);
  };
  const Graph graph(first, [&] {
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(ok(reduce(first)));
  });
  const Graph graph_of_window(second, [&] {
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(ok(reduce_window(second)));
  });
  const auto launch = [&] { graph.launch(first); };
  // An eager call may learn already what the graph before it has ended with.
  const auto launch_window = [&] {
    if (!eager) return graph_of_window.launch(second);
    const symm_status status = reduce_window(second);
    EXPECT_TRUE(status == SYMM_OK || status == SYMM_MISMATCH) << symm_last_error();
  };
  for (int turn = 0; turn < 20; ++turn) {
    launch();
    event.order(first, second);
    launch_window();
    event.order(second, first);
  }
  first.synchronize();
  ASSERT_TRUE(ok(symm_comm_check(comm.get(), nullptr)));

  auto start = std::chrono::steady_clock::now();
  if (rank.rank == 0) {
    launch();
    event.order(first, second);
    launch_window();
  } else {
    launch_window();
    event.order(second, first);
    launch();
  }
  first.synchronize();
  second.synchronize();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(2 * kSoon));
  int32_t blamed = -1;
  EXPECT_EQ(SYMM_MISMATCH, wait_for_error(comm.get(), &blamed, kErrorMs)) << symm_last_error();
  EXPECT_NE(nullptr, std::strstr(symm_last_error(), "symm_window_all_reduce")) << symm_last_error();
  EXPECT_TRUE(fails(SYMM_MISMATCH, reduce(first)));
  // The abort word is on its way to this GPU, or there.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  start = std::chrono::steady_clock::now();
  for (int i = 0; i < 10; ++i) graph.launch(first);
  first.synchronize();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(200));
  expect_works(rank, other.get(), second);
  EXPECT_TRUE(gpu_works());
}

// A rank that is done early leaves; the others need nothing of it any more.
void finish_early(Rank& rank) {
  Comm comm = create_on_gpu(rank, gpu_options(nullptr, 0, 10000));
  ASSERT_TRUE(comm);
  const GpuStream stream;
  Buffer buffer(1 << 20);
  buffer.fill(0);
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(ok(symm_all_reduce(comm.get(), buffer.data(), buffer.data(), 1000, SYMM_INT32,
                                   SYMM_SUM, stream)));
  }
  if (rank.rank == rank.size - 1) return;  // with work enqueued, and the process ends
  stream.synchronize();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_TRUE(ok(symm_comm_check(comm.get(), nullptr)));
}

class GpuFaults : public testing::TestWithParam<Layout> {
 protected:
  void SetUp() override {
    NEEDS_GPUS(GetParam().processes);
    NEEDS_LAUNCHES_OF(GetParam());
  }
};
TEST_P(GpuFaults, EveryPairOfCallsThatDifferIsAMismatch) {
  if (GetParam().ranks() > 2) GTEST_SKIP() << "pairs are for two ranks";
  run(GetParam(), every_pair, gpu_run(110));
}
TEST_P(GpuFaults, ATimeoutNamesWhoIsMissing) { end_of_the_last(GetParam(), "timeout"); }
TEST_P(GpuFaults, AnAbortEndsEveryWait) { end_of_the_last(GetParam(), "abort"); }
TEST_P(GpuFaults, ARankThatLeftIsMissedByItsName) { end_of_the_last(GetParam(), "leave"); }
TEST_P(GpuFaults, ARankThatDiedIsMissedByItsName) {
  if (GetParam().processes == 1) GTEST_SKIP() << "threads die together";
  end_of_the_last(GetParam(), "die");
}
TEST_P(GpuFaults, AnAbortEndsAWaitThatHoldsTheDriver) { end_of_the_last(GetParam(), "abort held"); }
TEST_P(GpuFaults, ADeathEndsAWaitThatHoldsTheDriver) {
  if (GetParam().processes == 1) GTEST_SKIP() << "threads die together";
  end_of_the_last(GetParam(), "die held");
}
TEST_P(GpuFaults, ReplaysAfterAFaultReturnAtOnce) {
  run(GetParam(), replays_after_a_fault, gpu_run(50));
}
TEST_P(GpuFaults, GraphsInAnOrderThatDiffersAreAMismatch) {
  run(GetParam(), order_that_differs, gpu_run(50));
}
TEST_P(GpuFaults, AGraphAndEagerCallsInAnOrderThatDiffersAreAMismatch) {
  RunOptions options = gpu_run(50);
  options.argument = "eager";
  run(GetParam(), order_that_differs, options);
}
TEST_P(GpuFaults, ARankMayFinishFirst) { run(GetParam(), finish_early, gpu_run(50)); }
INSTANTIATE_TEST_SUITE_P(Ranks, GpuFaults, testing::Values(threads(2), threads(4), processes(2)),
                         [](const testing::TestParamInfo<Layout>& info) {
                           return std::to_string(info.param.processes) + "x" +
                                  std::to_string(info.param.threads);
                         });

}  // namespace
}  // namespace symm_test
