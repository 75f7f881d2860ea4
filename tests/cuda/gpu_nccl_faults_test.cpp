// What ends work that goes through NCCL, what the ranks are told, and that the process, its context
// and its other communicators go on.
#include <signal.h>

#include <memory>

#include "tests/cuda/gpu_nccl.h"

namespace symm_test {
namespace {

class GpuNcclFaults : public NeedsNccl {};

// From the cause until the stream of the rank that waited is free.
constexpr int64_t kUsualBoundMs = 10000;
constexpr int kSoonMs = 500;  // the wait deadline of tests of that deadline
constexpr size_t kCount = size_t{1} << 18;

bool says(const Rank& rank, const char* word) {
  return rank.argument.find(word) != std::string::npos;
}

// The GPU, a communicator made before, one made after, all with NCCL.
void expect_life_goes_on(const Rank& rank, symm_comm* before) {
  EXPECT_TRUE(gpu_works());
  rank.at("using another communicator");
  expect_has_nccl(before);
  if (testing::Test::HasFatalFailure()) return;
  rank.at("making another communicator");
  const Comm after = create_alone_on_gpu(rank, "after");
  ASSERT_TRUE(after);
  expect_has_nccl(after.get());
}

// ---- A call that the other rank never makes -----------------------------------------------------

// Rank 1 does not make it; the argument says what ends rank 0's wait, and whether that is a replay.
void peer_never_comes(Rank& rank) {
  const bool absent = rank.rank == 1;
  Comm comm =
      create_on_gpu(rank, nccl_options("first", kSetUpMs, says(rank, "timeout") ? kSoonMs : 60000));
  ASSERT_TRUE(comm);
  symm_comm_options options = nccl_options();
  options.flags |= SYMM_COMM_NCCL;
  const Comm own = split(comm.get(), rank.rank, 0, &options);
  ASSERT_TRUE(own);
  const GpuStream stream;
  Buffer buffer(kCount * sizeof(float));
  buffer.fill(0);
  const auto reduce = [&] {
    return symm_all_reduce(comm.get(), buffer.data(), buffer.data(), kCount, SYMM_FLOAT32, SYMM_SUM,
                           stream);
  };
  std::unique_ptr<Graph> graph;
  if (says(rank, "graph")) {
    graph = std::make_unique<Graph>(stream, [&] {
      for (int i = 0; i < 5; ++i) ASSERT_TRUE(ok(reduce()));
    });
    graph->launch(stream);  // once with both
  } else {
    ASSERT_TRUE(ok(reduce()));
  }
  stream.synchronize();
  ASSERT_TRUE(ok(symm_comm_check(comm.get(), nullptr)));

  if (absent) {
    rank.at("enqueued");
    rank.hear();
    if (says(rank, "leave")) comm.reset();
    if (says(rank, "peer aborts")) {
      EXPECT_EQ(SYMM_OK, symm_comm_abort(comm.get()));
    }
    rank.hear();
  } else {
    // One call that waits, and what lies behind it.
    for (int i = 0; i < 3; ++i) {
      if (graph) {
        graph->launch(stream);
      } else {
        ASSERT_TRUE(ok(reduce()));
      }
    }
    rank.at("enqueued");
    const int64_t start = now_ms();
    if (says(rank, "own abort")) {
      sleep_ms(200);
      EXPECT_EQ(SYMM_OK, symm_comm_abort(comm.get()));
    }
    stream.synchronize();
    EXPECT_LT(now_ms() - start, kUsualBoundMs);
    const bool aborted = says(rank, "abort");
    const symm_status expected = says(rank, "timeout") ? SYMM_TIMEOUT
                                 : aborted             ? SYMM_ABORTED
                                                       : SYMM_PEER;
    const int expected_blame = says(rank, "timeout") ? -1 : says(rank, "own abort") ? 0 : 1;
    int32_t blamed = -2;
    EXPECT_TRUE(fails(expected, symm_comm_check(comm.get(), &blamed)));
    EXPECT_EQ(expected_blame, blamed) << symm_last_error();
    if (says(rank, "timeout")) {
      EXPECT_TRUE(
          mentions_all(symm_last_error(),
                       {"symm_all_reduce(count " + std::to_string(kCount),
                        std::to_string(kSoonMs * kSlowdown) + " ms", "options.wait_timeout_ms"}));
    }
    EXPECT_TRUE(fails(expected, reduce()));
    EXPECT_TRUE(fails(expected, symm_comm_barrier(comm.get(), stream)));
    expect_life_goes_on(rank, own.get());
    if (testing::Test::HasFatalFailure()) return;
    rank.at("told");
  }

  if (says(rank, "dies")) return;

  // Both again, while the first one is still there or has just gone.
  if (absent && comm) {
    const symm_status status = wait_for_error(comm.get());
    EXPECT_EQ(says(rank, "timeout") ? SYMM_TIMEOUT : SYMM_ABORTED, status) << symm_last_error();
  }
  graph.reset();
  if (!absent) comm.reset();
  const Comm again = create_on_gpu(rank, nccl_options("again"));
  ASSERT_TRUE(again);
  expect_has_nccl(again.get());
}

void end_of_the_wait(const std::string& how) {
  if (launches_block()) {
    GTEST_SKIP()
        << "CUDA_LAUNCH_BLOCKING is set: the rank that waits could say that it has enqueued "
           "its call only when that has ended";
  }
  Ranks ranks(processes(2), peer_never_comes, nccl_run(Domains::kApart, 60, how));
  ASSERT_TRUE(ranks.wait_for_all("enqueued"));
  sleep_ms(100);  // so that the kernel waits already
  const bool dies = how.find("dies") != std::string::npos;
  if (dies) {
    ranks.signal(1, SIGKILL);
  } else {
    ranks.tell(1, "now");
  }
  ASSERT_TRUE(ranks.wait_for(0, "told"));
  if (!dies) ranks.tell(1, "go");
  EXPECT_TRUE(ranks.finish());
}

TEST_F(GpuNcclFaults, ACallThatAPeerDoesNotMakeEndsAtItsDeadline) { end_of_the_wait("timeout"); }
TEST_F(GpuNcclFaults, ThePeersAbortEndsAWait) { end_of_the_wait("peer aborts"); }
TEST_F(GpuNcclFaults, AnAbortEndsTheOwnWait) { end_of_the_wait("own abort"); }
TEST_F(GpuNcclFaults, ARankThatLeftIsMissed) { end_of_the_wait("leave"); }
TEST_F(GpuNcclFaults, ARankThatDiedIsMissed) { end_of_the_wait("dies"); }
TEST_F(GpuNcclFaults, ThePeersAbortEndsReplays) { end_of_the_wait("graph, peer aborts"); }
TEST_F(GpuNcclFaults, AnAbortEndsTheOwnReplays) { end_of_the_wait("graph, own abort"); }
TEST_F(GpuNcclFaults, TheDeathOfARankEndsReplays) { end_of_the_wait("graph, dies"); }

// ---- A rank killed while both work --------------------------------------------------------------

// Both reduce without a pause until rank 1 is killed.
void work_until_the_end(Rank& rank) {
  const Comm comm = create_on_gpu(rank, nccl_options("first", kSetUpMs, 60000));
  ASSERT_TRUE(comm);
  symm_comm_options options = nccl_options();
  options.flags |= SYMM_COMM_NCCL;
  const Comm own = split(comm.get(), rank.rank, 0, &options);
  ASSERT_TRUE(own);
  constexpr size_t kMany = size_t{4} << 20;
  const GpuStream stream;
  Buffer buffer(kMany * sizeof(float));
  buffer.fill(0);
  const auto reduce = [&] {
    return symm_all_reduce(comm.get(), buffer.data(), buffer.data(), kMany, SYMM_FLOAT32, SYMM_SUM,
                           stream);
  };
  std::unique_ptr<Graph> graph;
  if (says(rank, "graph")) {
    graph = std::make_unique<Graph>(stream, [&] {
      for (int i = 0; i < 4; ++i) ASSERT_TRUE(ok(reduce()));
    });
  }
  const int64_t start = now_ms();
  symm_status status = SYMM_OK;
  for (int i = 0; status == SYMM_OK && now_ms() - start < 30000; ++i) {
    if (graph) {
      graph->launch(stream);
    } else {
      status = reduce();
    }
    if (i == 64) rank.at("working");
    if (i % 8 != 7) continue;
    stream.synchronize();
    if (status == SYMM_OK) status = symm_comm_check(comm.get(), nullptr);
  }
  stream.synchronize();
  rank.give(std::to_string(now_ms()));
  EXPECT_EQ(SYMM_PEER, status) << symm_last_error();
  int32_t blamed = -1;
  EXPECT_TRUE(fails(SYMM_PEER, symm_comm_check(comm.get(), &blamed), {"rank 1", "died"}));
  EXPECT_EQ(1, blamed);
  expect_life_goes_on(rank, own.get());
  rank.at("told");
}

void kill_at_work(const std::string& how) {
  Ranks ranks(processes(2), work_until_the_end, nccl_run(Domains::kApart, 60, how));
  ASSERT_TRUE(ranks.wait_for_all("working"));
  sleep_ms(100);
  const int64_t killed = now_ms();
  ranks.signal(1, SIGKILL);
  ASSERT_TRUE(ranks.wait_for(0, "told"));
  EXPECT_TRUE(ranks.finish());
  const std::string over = ranks.given(0, 0);
  ASSERT_NE("", over);
  EXPECT_LT(std::stoll(over) - killed, kUsualBoundMs);
}
TEST_F(GpuNcclFaults, ARankKilledAtWorkIsToldInTime) { kill_at_work("eager"); }
TEST_F(GpuNcclFaults, ARankKilledAtReplaysIsToldInTime) { kill_at_work("graph"); }

// ---- A rank killed while NCCL is set up ---------------------------------------------------------

// Rank 1 dies before the meeting, in it or inside NCCL: rank 0 is done within its deadline.
void set_up_with_a_victim(Rank& rank) {
  use_gpu(gpu_of(rank));
  { const Buffer first(1); }
  rank.at("creating");
  Comm comm;
  const int64_t start = now_ms();
  const symm_status status = try_create(rank, nccl_options("first", 8000, 2000), &comm);
  EXPECT_LT(now_ms() - start, 20000);
  if (status == SYMM_OK) {
    rank.at("made");
    EXPECT_EQ(SYMM_PEER, wait_for_error(comm.get())) << symm_last_error();
  } else {
    // Who finds it first says it: symm, by the meeting or the process, or NCCL by its sockets.
    EXPECT_TRUE(status == SYMM_PEER || status == SYMM_TIMEOUT || status == SYMM_NCCL)
        << symm_status_name(status) << ": " << symm_last_error();
  }
  rank.at("making another communicator");
  const Comm after = create_alone_on_gpu(rank, "after");
  ASSERT_TRUE(after);
  expect_has_nccl(after.get());
  EXPECT_TRUE(gpu_works());
  rank.at("told");
}
TEST_F(GpuNcclFaults, ARankKilledWhileNcclIsSetUpHoldsNobodyUp) {
  // NCCL takes a second or two; with both there already, "made" ends the search.
  for (const int ms : {0, 300, 800, 1500}) {
    Ranks ranks(processes(2), set_up_with_a_victim, nccl_run(Domains::kApart, 28));
    ASSERT_TRUE(ranks.wait_for_all("creating"));
    sleep_ms(ms);
    ranks.signal(1, SIGKILL);
    ASSERT_TRUE(ranks.wait_for(0, "told")) << "killed after " << ms << " ms";
    EXPECT_TRUE(ranks.finish()) << "killed after " << ms << " ms";
  }
}

}  // namespace
}  // namespace symm_test
