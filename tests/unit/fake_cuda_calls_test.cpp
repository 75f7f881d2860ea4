// All-reduces and barriers on GPUs, over the fake driver: arguments, streams, captures, lifetimes,
// faults.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "core/call.h"
#include "core/cuda/plan.h"
#include "tests/unit/fake_cuda_ranks.h"

namespace symm::cuda {
namespace {

class CudaCalls : public ::testing::Test {
 protected:
  void SetUp() override {
    comm_ = create({0, 1});
    expect_all(comm_.outcomes, SYMM_OK);
    input_ = fake_.malloc(0, 4096);
    output_ = fake_.malloc(0, 4096);
    elsewhere_ = fake_.malloc(1, 4096);
    stream_ = fake_.make_stream(0);
    other_ = fake_.make_stream(0);
    fake_.clear_log();
  }
  void TearDown() override {
    free_all(comm_);
    fake_.destroy_stream(stream_);
    if (other_ != nullptr) fake_.destroy_stream(other_);
    fake_.free(input_);
    fake_.free(output_);
    fake_.free(elsewhere_);
    EXPECT_TRUE(nothing_left(fake_));
  }
  symm_status reduce(CUstream stream, size_t count = 16) {
    return symm_all_reduce(comm_.comm[0], input_, output_, count, SYMM_FLOAT32, SYMM_SUM, stream);
  }
  // What was logged, without the streams' numbers.
  std::string log() const {
    std::string verbs;
    for (const std::string& line : fake_.log()) verbs += line.substr(0, line.find(' ')) + ' ';
    return verbs;
  }
  // Of the two ranks, as one of them sees it.
  static Control* control(const Params& params, int rank) {
    return reinterpret_cast<Control*>(rank == params.rank ? params.own : params.peers[0]);
  }
  static uint32_t abort_word(const Params& params, int rank) {
    return std::atomic_ref(control(params, rank)->abort).load();
  }

  FakeCuda fake_;
  Communicator comm_;
  void *input_ = nullptr, *output_ = nullptr, *elsewhere_ = nullptr;
  CUstream stream_ = nullptr, other_ = nullptr;
};

TEST_F(CudaCalls, LaunchesWhatWasAskedFor) {
  ASSERT_EQ(SYMM_OK, reduce(stream_)) << symm_last_error();
  ASSERT_EQ(1u, fake_.launches().size());
  const auto launched = fake_.launches()[0];
  EXPECT_EQ(stream_, launched.stream);
  EXPECT_TRUE(launched.dependent);
  const Params& p = launched.params;
  EXPECT_EQ(input_, p.input);
  EXPECT_EQ(output_, p.output);
  EXPECT_EQ(16u, p.count);
  EXPECT_EQ(0, p.rank);
  EXPECT_EQ(2, p.size);
  EXPECT_EQ(SYMM_SUM, p.op);
  EXPECT_EQ(600000u * 1000000ull, p.timeout_ns);
  EXPECT_EQ(hash_of(p.call), p.call_hash);
  EXPECT_EQ(16u, call_of(p.call).count);
  EXPECT_NE(p.own, p.peers[0]);
}

TEST_F(CudaCalls, LargeInputsGoInPartsThatCoverThem) {
  const size_t count = size_t{96} << 20;  // bytes; the scratch has 32 MiB
  void* large = fake_.map(0, count, 1);
  ASSERT_EQ(SYMM_OK,
            symm_all_reduce(comm_.comm[0], large, large, count, SYMM_UINT8, SYMM_SUM, stream_))
      << symm_last_error();
  const auto launches = fake_.launches();
  EXPECT_GT(launches.size(), 1u);
  size_t done = 0;
  for (const auto& launched : launches) {
    EXPECT_EQ(static_cast<std::byte*>(large) + done, launched.params.input);
    EXPECT_EQ(launched.params.input, launched.params.output);
    EXPECT_EQ(count, launched.params.call.count);
    done += launched.params.count;
  }
  EXPECT_EQ(count, done);
  fake_.unmap(large);
}

TEST_F(CudaCalls, WrongArgumentsLaunchNothingAndChangeNothing) {
  char host[64];
  symm_comm* comm = comm_.comm[0];
  const CUstream foreign = fake_.make_stream(1);
  char* in = static_cast<char*>(input_);
  constexpr size_t kLone = size_t{2} << 20;
  void* const lone = fake_.map(0, kLone, 1);  // nothing follows it at once
  struct Row {
    const void* input;
    void* output;
    size_t count;
    void* stream;
    const char* message;
  };
  for (const Row& row :
       {Row{host, output_, 8, stream_, "input"}, Row{input_, host, 8, stream_, "output"},
        Row{elsewhere_, output_, 8, stream_, "is memory of GPU 1"},
        Row{lone, lone, kLone / 4 + 1, stream_, "past the end"},
        Row{in + 1, output_, 8, stream_, "not aligned"},
        Row{input_, in + 4, 8, stream_, "overlaps"}, Row{nullptr, output_, 8, stream_, "is NULL"},
        Row{input_, output_, 8, foreign, "belongs to another GPU"}}) {
    EXPECT_EQ(SYMM_INVALID_ARGUMENT, symm_all_reduce(comm, row.input, row.output, row.count,
                                                     SYMM_FLOAT32, SYMM_SUM, row.stream));
    EXPECT_NE(nullptr, std::strstr(symm_last_error(), row.message)) << symm_last_error();
  }
  EXPECT_EQ(SYMM_UNSUPPORTED, symm_all_reduce(comm, input_, output_, 8, static_cast<symm_dtype>(77),
                                              SYMM_SUM, stream_));
  EXPECT_EQ(SYMM_INVALID_ARGUMENT, symm_comm_barrier(comm, foreign));
  EXPECT_TRUE(fake_.launches().empty());
  EXPECT_EQ(SYMM_OK, symm_comm_check(comm, nullptr));
  EXPECT_EQ(SYMM_OK, reduce(stream_));
  fake_.destroy_stream(foreign);
  fake_.unmap(lone);
}

TEST_F(CudaCalls, AnEventIsWaitedForOnlyWhereTheStreamChanges) {
  ASSERT_EQ(SYMM_OK, reduce(stream_));
  ASSERT_EQ(SYMM_OK, reduce(stream_));
  EXPECT_EQ("launch record launch record ", log());
  fake_.clear_log();
  ASSERT_EQ(SYMM_OK, reduce(other_));
  ASSERT_EQ(SYMM_OK, symm_comm_barrier(comm_.comm[0], other_));
  ASSERT_EQ(SYMM_OK, reduce(stream_));
  EXPECT_EQ("wait launch record launch record wait launch record ", log());
}

TEST_F(CudaCalls, TheLastStreamMayBeDestroyed) {
  ASSERT_EQ(SYMM_OK, reduce(other_));
  fake_.destroy_stream(other_);
  fake_.clear_log();
  // Also one that gets the handle of the destroyed one.
  other_ = fake_.make_stream(0);
  ASSERT_EQ(SYMM_OK, reduce(other_));
  EXPECT_EQ("wait launch record ", log());
}

TEST_F(CudaCalls, CallsOfOneCaptureAreChainedAndNoEventComesFromOutside) {
  ASSERT_EQ(SYMM_OK, reduce(stream_));
  fake_.clear_log();
  const CUgraph graph = fake_.begin_capture(other_);
  const CUstream third = fake_.make_stream(0);
  fake_.join_capture(third, graph);
  ASSERT_EQ(SYMM_OK, reduce(other_)) << symm_last_error();
  ASSERT_EQ(SYMM_OK, reduce(other_));
  EXPECT_EQ("launch launch ", log());
  ASSERT_EQ(SYMM_OK, reduce(third));
  EXPECT_EQ("launch launch depend launch ", log());
  fake_.end_capture(graph);
  fake_.clear_log();
  // Eager calls go on from the last eager one.
  ASSERT_EQ(SYMM_OK, reduce(stream_));
  EXPECT_EQ("launch record ", log());
  // Another capture is another chain.
  fake_.clear_log();
  const CUgraph next = fake_.begin_capture(third);
  ASSERT_EQ(SYMM_OK, reduce(third));
  EXPECT_EQ("launch ", log());
  fake_.end_capture(next);
  fake_.destroy_graph(graph);
  fake_.destroy_graph(next);
  fake_.destroy_stream(third);
}

TEST_F(CudaCalls, ABrokenCaptureIsRefused) {
  const CUgraph graph = fake_.begin_capture(stream_);
  fake_.invalidate_capture(stream_);
  EXPECT_EQ(SYMM_INVALID_ARGUMENT, reduce(stream_));
  EXPECT_NE(nullptr, std::strstr(symm_last_error(), "has broken")) << symm_last_error();
  EXPECT_TRUE(fake_.launches().empty());
  fake_.end_capture(graph);
  fake_.destroy_graph(graph);
}

TEST_F(CudaCalls, ACaptureThatAnotherThreadBreaksEndsNothingElse) {
  const CUgraph graph = fake_.begin_capture(stream_);
  for (int call = 0; call < 50; ++call) {
    fake_.fail_at(call, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    const symm_status status = reduce(stream_);
    if (fake_.failed().empty()) break;
    EXPECT_EQ(SYMM_INVALID_ARGUMENT, status) << fake_.failed() << ": " << symm_last_error();
  }
  fake_.fail_at(-1, CUDA_SUCCESS);
  EXPECT_EQ(SYMM_OK, symm_comm_check(comm_.comm[0], nullptr));
  fake_.end_capture(graph);
  EXPECT_EQ(SYMM_OK, reduce(stream_)) << symm_last_error();
  fake_.destroy_graph(graph);
}

TEST_F(CudaCalls, AGraphKeepsItsWindowAndCommunicator) {
  Windows w = alloc(comm_, {3 << 20, 3 << 20});
  expect_all(w.outcomes, SYMM_OK);
  const CUgraph graph = fake_.begin_capture(stream_);
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(SYMM_OK,
              symm_window_all_reduce(w.window[0], 0, output_, 16, SYMM_FLOAT32, SYMM_SUM, stream_))
        << symm_last_error();
  }
  fake_.end_capture(graph);
  EXPECT_EQ(1, fake_.alive().user_objects);
  const Params params = fake_.launches().back().params;
  free_all(w);
  free_all(comm_);
  EXPECT_TRUE(
      eventually([&] { return std::atomic_ref(control(params, 0)->left[1]).load() == 1u; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  // Rank 0's graph has its window and arena, and rank 0's view of rank 1's; rank 1 has left.
  EXPECT_GE(fake_.alive().allocations, 4);
  EXPECT_EQ(0u, abort_word(params, 0));
  fake_.destroy_graph(graph);
}

TEST_F(CudaCalls, EnqueuedWorkKeepsWhatItUses) {
  Windows w = alloc(comm_, {3 << 20, 3 << 20});
  expect_all(w.outcomes, SYMM_OK);
  ASSERT_EQ(SYMM_OK,
            symm_window_all_reduce(w.window[0], 0, output_, 16, SYMM_FLOAT32, SYMM_SUM, stream_));
  const Params params = fake_.launches().back().params;
  fake_.hold_events(true);
  free_all(w);
  free_all(comm_);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_GE(fake_.alive().allocations, 4);
  // It has not left yet either: peers wait for what it enqueued.
  EXPECT_EQ(0u, std::atomic_ref(control(params, 1)->left[0]).load());
  fake_.hold_events(false);
}

TEST_F(CudaCalls, AnAbortReachesTheKernelsOfEveryRank) {
  ASSERT_EQ(SYMM_OK, reduce(stream_));
  const Params params = fake_.launches().back().params;
  ASSERT_EQ(SYMM_OK, symm_comm_abort(comm_.comm[1]));
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(eventually([&] { return abort_word(params, rank) == -SYMM_ABORTED; })) << rank;
    int32_t blamed = -1;
    EXPECT_TRUE(eventually([&] {
      return symm_comm_check(comm_.comm[static_cast<size_t>(rank)], &blamed) == SYMM_ABORTED;
    }));
    EXPECT_EQ(1, blamed);
  }
  EXPECT_EQ(SYMM_ABORTED, reduce(stream_));
}

// Kernels that have waited long ask the host themselves.
TEST_F(CudaCalls, AnAbortReachesTheKernelsOfEveryRankWhileTheDriverIsHeld) {
  ASSERT_EQ(SYMM_OK, reduce(stream_));
  const CUstream stream = fake_.make_stream(1);
  ASSERT_EQ(SYMM_OK, symm_comm_barrier(comm_.comm[1], stream));
  const auto launches = fake_.launches();
  ASSERT_EQ(2u, launches.size());
  {
    const auto held = fake_.hold_driver();
    const auto start = std::chrono::steady_clock::now();
    ASSERT_EQ(SYMM_OK, symm_comm_abort(comm_.comm[1]));
    for (int rank = 0; rank < 2; ++rank) {
      const ErrorRecord& error = *launches[static_cast<size_t>(rank)].params.error;
      EXPECT_TRUE(eventually([&] {
        return std::atomic_ref(const_cast<uint32_t&>(error.abort)).load() == -SYMM_ABORTED;
      })) << rank;
      EXPECT_TRUE(eventually([&] {
        return symm_comm_check(comm_.comm[static_cast<size_t>(rank)], nullptr) == SYMM_ABORTED;
      }));
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(3));
  }
  for (int rank = 0; rank < 2; ++rank) {
    const Params& params = launches[static_cast<size_t>(rank)].params;
    EXPECT_TRUE(eventually([&] { return abort_word(params, rank) == -SYMM_ABORTED; })) << rank;
  }
  fake_.destroy_stream(stream);
}

TEST_F(CudaCalls, WhatAKernelReportsIsEveryRanksError) {
  ASSERT_EQ(SYMM_OK, reduce(stream_));
  const Params params = fake_.launches().back().params;
  Call theirs;
  theirs.form = Form::kBarrier;
  params.error->theirs = record_of(theirs, Algorithm::kBarrier);
  report_error(params, SYMM_MISMATCH, 1);
  int32_t blamed = -1;
  EXPECT_EQ(SYMM_MISMATCH, symm_comm_check(comm_.comm[0], &blamed));
  EXPECT_EQ(1, blamed);
  EXPECT_NE(nullptr, std::strstr(symm_last_error(), "symm_all_reduce(count 16, float32, sum)"))
      << symm_last_error();
  EXPECT_NE(nullptr, std::strstr(symm_last_error(), "symm_comm_barrier()"));
  // The other rank makes no call, and learns it.
  EXPECT_TRUE(eventually([&] { return symm_comm_check(comm_.comm[1], &blamed) == SYMM_MISMATCH; }));
  EXPECT_EQ(1, blamed);
  EXPECT_TRUE(eventually([&] { return abort_word(params, 1) == -SYMM_MISMATCH; }));
  EXPECT_EQ(SYMM_MISMATCH, reduce(stream_));
}

TEST_F(CudaCalls, ATimeoutNamesTheRankAndTheCall) {
  ASSERT_EQ(SYMM_OK, reduce(stream_));
  const Params params = fake_.launches().back().params;
  params.error->waited_ns = 5'000'000'000;
  report_error(params, SYMM_TIMEOUT, 1);
  EXPECT_EQ(SYMM_TIMEOUT, symm_comm_check(comm_.comm[0], nullptr));
  EXPECT_NE(nullptr, std::strstr(symm_last_error(), "rank 1 did not arrive")) << symm_last_error();
  EXPECT_NE(nullptr, std::strstr(symm_last_error(), "5000 ms"));
}

TEST_F(CudaCalls, ALaunchThatFailsIsSticky) {
  fake_.fail_at(0, CUDA_SUCCESS);
  ASSERT_EQ(SYMM_OK, reduce(stream_));
  const int calls = fake_.calls();
  // The launch is the last call but for the event's record and, once, its creation.
  for (int call = 0; call < calls; ++call) {
    fake_.fail_at(call, CUDA_ERROR_UNKNOWN);
    const symm_status status = reduce(stream_);
    if (fake_.failed() != "cuLaunchKernelEx") {
      if (status == SYMM_CUDA) break;
      continue;
    }
    EXPECT_EQ(SYMM_CUDA, status);
    EXPECT_NE(nullptr, std::strstr(symm_last_error(), "cuLaunchKernelEx")) << symm_last_error();
    break;
  }
  fake_.fail_at(-1, CUDA_SUCCESS);
  EXPECT_EQ(SYMM_CUDA, reduce(stream_));
}

TEST_F(CudaCalls, ReportAndPlanAreAnswered) {
  size_t needed = 0;
  EXPECT_EQ(SYMM_OK, symm_report(comm_.comm[0], nullptr, 0, &needed)) << symm_last_error();
  std::string report(needed, '\0');
  ASSERT_EQ(SYMM_OK, symm_report(comm_.comm[0], report.data(), report.size(), &needed));
  EXPECT_NE(std::string::npos, report.find("\"device\":\"cuda:0\"")) << report;
  EXPECT_NE(std::string::npos, report.find("GPU-62626262-")) << report;
  EXPECT_EQ(SYMM_OK,
            symm_plan(comm_.comm[0], nullptr, 8, SYMM_BFLOAT16, SYMM_SUM, nullptr, 0, &needed));
  std::string plan(needed, '\0');
  ASSERT_EQ(SYMM_OK, symm_plan(comm_.comm[0], nullptr, 8, SYMM_BFLOAT16, SYMM_SUM, plan.data(),
                               plan.size(), &needed));
  EXPECT_NE(std::string::npos, plan.find("low_latency")) << plan;
}

}  // namespace
}  // namespace symm::cuda
