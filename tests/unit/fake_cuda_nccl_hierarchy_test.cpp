// Peer domains of several ranks each, over the fake driver and the fake NCCL: which calls go by
// domain, what is then enqueued where, and whose failure is whose. The fake kernels do nothing, so
// that numbers are left to ranks on real GPUs.
#include <atomic>
#include <cstring>

#include "core/cuda/hierarchy.h"
#include "core/cuda/plan.h"
#include "tests/unit/fake_cuda_nccl.h"

namespace symm::cuda {
namespace {

constexpr size_t kLarge = 1 << 20;  // bytes, past what goes by domain

class Domains : public Apart {
 protected:
  explicit Domains(int gpus = 4) : Apart(gpus) { setenv("SYMM_DOMAIN_RANKS", "2", 1); }

  void make(const std::vector<int>& gpus, uint32_t flags = 0, int32_t wait_timeout_ms = 0) {
    symm_comm_options options = nccl_options(flags);
    options.wait_timeout_ms = wait_timeout_ms;
    c_ = create(gpus, options);
    for (const int gpu : gpus) {
      memory_.push_back(fake_.malloc(gpu, 2 * kLarge));
      std::memset(memory_.back(), 0, 2 * kLarge);
    }
    gpus_ = gpus;
  }
  void TearDown() override {
    free_all(c_);
    for (void* one : memory_) fake_.free(one);
  }

  // Every rank's all-reduce, out of place.
  std::vector<Outcome> call(size_t count, symm_dtype dtype = SYMM_FLOAT32, symm_op op = SYMM_SUM) {
    std::vector<Outcome> outcomes(gpus_.size());
    each_rank(static_cast<int>(gpus_.size()), [&](int rank) {
      const auto r = static_cast<size_t>(rank);
      outcomes[r] =
          outcome(symm_all_reduce(c_.comm[r], memory_[r], static_cast<char*>(memory_[r]) + kLarge,
                                  count, dtype, op, streams_[static_cast<size_t>(gpus_[r])]));
    });
    return outcomes;
  }
  // What a rank launched, of those whose memory is their own GPU's.
  std::vector<Params> launched(size_t rank) const {
    std::vector<Params> mine;
    for (const auto& one : fake_.launches()) {
      if (one.params.output == static_cast<std::byte*>(memory_[rank]) + kLarge) {
        mine.push_back(one.params);
      }
    }
    return mine;
  }

  Communicator c_;
  std::vector<void*> memory_;
  std::vector<int> gpus_;
};

TEST_F(Domains, SmallCallsGoByDomainAndLargeOnesThroughNcclAlone) {
  make({0, 1, 2, 3});
  expect_all(c_.outcomes, SYMM_OK);
  const int before = nccl_.reductions;
  expect_all(call(1000), SYMM_OK);
  EXPECT_EQ(before + 2, nccl_.reductions) << "of the domains' first ranks";
  EXPECT_EQ(8u, fake_.launches().size());
  EXPECT_TRUE(contains(plan_of(c_.comm[3]), "\"algorithm\":\"hierarchical\""));
  fake_.clear_log();
  expect_all(call(kLarge / 4), SYMM_OK);
  EXPECT_EQ(before + 6, nccl_.reductions);
  EXPECT_TRUE(fake_.launches().empty());
  EXPECT_TRUE(contains(report_of(c_.comm[0]),
                       "{\"up_to_bytes\":32768,\"algorithm\":\"hierarchical\"},"
                       "{\"up_to_bytes\":null,\"algorithm\":\"nccl\"}"));
}

TEST_F(Domains, TheWayBackAddsNothingButZerosToTheFirstRanksBits) {
  make({0, 1, 2, 3});
  expect_all(c_.outcomes, SYMM_OK);
  struct Row {
    symm_dtype dtype;
    symm_dtype back;
    size_t count;
  };
  for (const Row& row :
       {Row{SYMM_FLOAT32, SYMM_UINT32, 7}, Row{SYMM_FLOAT64, SYMM_UINT64, 7},
        Row{SYMM_BFLOAT16, SYMM_UINT8, 14}, Row{SYMM_FLOAT8_E5M2, SYMM_UINT8, 7}}) {
    fake_.clear_log();
    expect_all(call(7, row.dtype, SYMM_MAX), SYMM_OK);
    for (size_t rank = 0; rank < 4; ++rank) {
      const auto mine = launched(rank);
      ASSERT_EQ(2u, mine.size()) << rank;
      const Call there = call_of(mine[0].call);
      EXPECT_EQ(memory_[rank], mine[0].input);
      EXPECT_EQ(row.dtype, there.dtype);
      EXPECT_EQ(SYMM_MAX, there.op);
      EXPECT_EQ(2, mine[0].size);
      const Call back = call_of(mine[1].call);
      EXPECT_EQ(row.back, back.dtype);
      EXPECT_EQ(SYMM_SUM, back.op);
      EXPECT_EQ(row.count, back.count);
      if (rank % 2 == 0) {
        EXPECT_EQ(mine[1].output, mine[1].input);
      } else {
        EXPECT_NE(mine[1].output, mine[1].input);
        for (size_t i = 0; i < 56; ++i) EXPECT_EQ(std::byte{0}, mine[1].input[i]);
      }
    }
  }
}

TEST_F(Domains, BarriersPassThroughBothLevels) {
  make({0, 1, 2, 3});
  expect_all(c_.outcomes, SYMM_OK);
  const int before = nccl_.reductions;
  each_rank(4, [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    EXPECT_EQ(SYMM_OK, symm_comm_barrier(c_.comm[r], streams_[r])) << symm_last_error();
  });
  EXPECT_EQ(before + 2, nccl_.reductions);
  EXPECT_EQ(8u, fake_.launches().size());
}

TEST_F(Domains, RanksThatShareGpusHaveNcclBetweenTheFirstOnesOnly) {
  make({0, 0, 1, 1}, SYMM_COMM_SHARE_GPU);
  expect_all(c_.outcomes, SYMM_OK);
  EXPECT_EQ(2, nccl_.communicators);
  expect_all(call(kLarge / 4), SYMM_OK);
  EXPECT_FALSE(fake_.launches().empty());
  void* inside = nullptr;
  EXPECT_EQ(SYMM_UNSUPPORTED, symm_comm_nccl(c_.comm[0], &inside));
  EXPECT_TRUE(contains(symm_last_error(), "share a GPU"));
  // What only NCCL of all ranks could do is refused, and changes nothing.
  expect_all(call(100, SYMM_INT32, SYMM_AVG), SYMM_UNSUPPORTED, "use SYMM_SUM and divide");
  expect_all(call(100, SYMM_FLOAT32, SYMM_AVG), SYMM_OK);
}

TEST_F(Domains, RanksThatShareGpusCannotAskForNccl) {
  make({0, 0, 1, 1}, SYMM_COMM_SHARE_GPU | SYMM_COMM_NCCL);
  expect_all(c_.outcomes, SYMM_UNSUPPORTED, "refuses ranks that share a GPU");
}

TEST_F(Domains, OfOtherSizesDoNotAverageAverages) {
  make({0, 1, 2});
  expect_all(c_.outcomes, SYMM_OK);
  expect_all(call(100, SYMM_FLOAT32, SYMM_AVG), SYMM_OK);
  EXPECT_TRUE(fake_.launches().empty()) << "through NCCL alone";
  expect_all(call(100, SYMM_FLOAT32, SYMM_SUM), SYMM_OK);
  EXPECT_EQ(4u, fake_.launches().size()) << "a rank alone in its domain needs no kernel";
}

TEST_F(Domains, WhatAKernelReportsIsEveryRanksErrorByItsNumberInTheWhole) {
  make({0, 1, 2, 3});
  expect_all(c_.outcomes, SYMM_OK);
  expect_all(call(100), SYMM_OK);
  const Params params = launched(3).back();
  params.error->theirs = record_of(Call{}, Algorithm::kBarrier);
  report_error(params, SYMM_MISMATCH, 0);
  for (size_t rank = 0; rank < 4; ++rank) {
    int32_t blamed = -1;
    EXPECT_TRUE(eventually([&] {
      return symm_comm_check(c_.comm[rank], &blamed) == SYMM_MISMATCH;
    })) << rank;
    EXPECT_EQ(2, blamed);
  }
  EXPECT_TRUE(contains(symm_last_error(), "rank 0 of the domain is rank 2"));
  EXPECT_TRUE(eventually([&] { return nccl_.aborted == 6; })) << nccl_.aborted;
  expect_all(call(100), SYMM_MISMATCH);
}

// The other domains have what NCCL made of a call that has failed here, and nothing else tells
// them.
TEST_F(Domains, WhatHasFailedInOneIsToldThoughItsRanksLeaveAtOnce) {
  make({0, 1, 2, 3});
  expect_all(c_.outcomes, SYMM_OK);
  expect_all(call(100), SYMM_OK);
  const Params params = launched(2).back();
  report_error(params, SYMM_TIMEOUT, 1);
  for (const size_t rank : {3, 2}) {
    symm_comm_free(c_.comm[rank]);
    c_.comm[rank] = nullptr;
  }
  for (const size_t rank : {0, 1}) {
    int32_t blamed = -1;
    EXPECT_TRUE(eventually([&] { return symm_comm_check(c_.comm[rank], &blamed) == SYMM_TIMEOUT; }))
        << rank;
    EXPECT_EQ(3, blamed);
  }
}

// Its own domain's first rank waits for the other domains, and is not the one that is late.
TEST_F(Domains, ATimeoutForTheFirstRankOfADomainBlamesNobody) {
  make({0, 1, 2, 3});
  expect_all(c_.outcomes, SYMM_OK);
  expect_all(call(100), SYMM_OK);
  const Params params = launched(3).back();
  report_error(params, SYMM_TIMEOUT, 0);
  int32_t blamed = 7;
  EXPECT_TRUE(eventually([&] { return symm_comm_check(c_.comm[0], &blamed) == SYMM_TIMEOUT; }));
  EXPECT_EQ(-1, blamed);
  EXPECT_TRUE(contains(symm_last_error(), "a rank of another domain did not arrive"));
}

TEST_F(Domains, AnAbortEndsBothLevels) {
  make({0, 1, 2, 3});
  expect_all(c_.outcomes, SYMM_OK);
  expect_all(call(100), SYMM_OK);
  EXPECT_EQ(SYMM_OK, symm_comm_abort(c_.comm[1]));
  EXPECT_TRUE(eventually([&] { return nccl_.aborted == 6; })) << nccl_.aborted;
  for (size_t rank = 0; rank < 4; ++rank) {
    int32_t blamed = -1;
    EXPECT_EQ(SYMM_ABORTED, symm_comm_check(c_.comm[rank], &blamed));
    EXPECT_EQ(1, blamed);
  }
}

// As by a cudaFree, which waits for the kernels: those of every domain can be told nevertheless.
TEST_F(Domains, AnAbortEndsBothLevelsWhileTheDriverIsHeld) {
  make({0, 1, 2, 3});
  expect_all(c_.outcomes, SYMM_OK);
  nccl_.enqueue_only = 1;
  fake_.hold_events(true);
  expect_all(call(100), SYMM_OK);
  std::vector<ErrorRecord*> errors;
  for (size_t rank = 0; rank < 4; ++rank) errors.push_back(launched(rank).back().error);
  {
    const auto held = fake_.hold_driver();
    // The watch of NCCL's work waits for the driver meanwhile.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(SYMM_OK, symm_comm_abort(c_.comm[3]));
    for (size_t rank = 0; rank < 4; ++rank) {
      EXPECT_TRUE(eventually([&] {
        return std::atomic_ref(errors[rank]->abort).load() == -SYMM_ABORTED;
      })) << rank;
      EXPECT_EQ(SYMM_ABORTED, symm_comm_check(c_.comm[rank], nullptr));
    }
  }
  fake_.hold_events(false);
}

TEST_F(Domains, NcclBetweenThemIsWatched) {
  make({0, 1, 2, 3}, 0, 500);
  expect_all(c_.outcomes, SYMM_OK);
  nccl_.enqueue_only = 1;
  // Rank 0 records: its domain's event, before NCCL, after NCCL.
  fake_.hold_events_after(2);
  EXPECT_EQ(SYMM_OK, symm_all_reduce(c_.comm[0], memory_[0], memory_[0], 1, SYMM_FLOAT32, SYMM_SUM,
                                     streams_[0]));
  EXPECT_TRUE(eventually([&] { return nccl_.aborted == 6; })) << nccl_.aborted;
  expect_all(check_all(c_), SYMM_TIMEOUT, "it went through NCCL");
  fake_.hold_events_after(-1);
}

TEST_F(Domains, ASplitByDomainHasWindows) {
  make({0, 1, 2, 3});
  expect_all(c_.outcomes, SYMM_OK);
  Communicator halves = split(c_, [](int rank) { return rank / 2; });
  expect_all(halves.outcomes, SYMM_OK);
  Windows w = alloc(halves, {64, 64, 64, 64});
  expect_all(w.outcomes, SYMM_OK);
  free_all(w);
  // And one across them a hierarchy again.
  Communicator all = split(c_, [](int) { return 0; });
  expect_all(all.outcomes, SYMM_OK);
  EXPECT_TRUE(contains(plan_of(all.comm[0]), "hierarchical"));
  free_all(halves);
  free_all(all);
}

TEST_F(Domains, AFailureOfNcclBetweenThemIsEveryRanks) {
  nccl_.fail_call = "ncclCommInitRankConfig";
  nccl_.fail_result = 6;
  nccl_.fail_rank = 3;  // of all ranks; there is no such rank among the first ones
  make({0, 1, 2, 3});
  expect_all(c_.outcomes, SYMM_NCCL, "ncclCommInitRankConfig");
}

// A sample: each call of the driver fails in turn in the tests of one level.
TEST_F(Domains, AFailureOfTheDriverIsEveryRanksAndLeaksNothing) {
  FakeCuda::Alive before;
  before.streams = 4;
  int failures = 0;
  for (int call = 0;; call += 7) {
    fake_.fail_at(call, CUDA_ERROR_UNKNOWN);
    const auto start = std::chrono::steady_clock::now();
    Communicator c = create({0, 1, 2}, nccl_options());
    for (const Outcome& outcome : c.outcomes) {
      EXPECT_EQ(c.outcomes[0].status, outcome.status)
          << "call " << call << " (" << fake_.failed() << "): " << c.outcomes[0].message << " | "
          << outcome.message;
    }
    if (c.outcomes[0].status != SYMM_OK) ++failures;
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10)) << call;
    free_all(c);
    const bool done = fake_.failed().empty();
    // Whoever waits inside the fake NCCL for the rank that failed, now or soon.
    eventually([&] {
      nccl_.release();
      return fake_.alive() == before;
    });
    EXPECT_TRUE(nothing_left(fake_, before)) << "after call " << call << ", " << fake_.failed();
    if (done || HasFailure()) break;
  }
  EXPECT_GT(failures, 20);
}

}  // namespace
}  // namespace symm::cuda
