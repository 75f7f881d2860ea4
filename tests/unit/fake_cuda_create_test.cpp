// Creation of communicators of GPUs, over the fake driver.
#include <cstdlib>

#include "tests/unit/fake_cuda_ranks.h"

namespace symm::cuda {
namespace {

TEST(CudaCreate, TwoRanksOnTwoGpusLeaveNothingBehind) {
  FakeCuda fake;
  for (int turn = 0; turn < 3; ++turn) {
    Communicator c = create({0, 1});
    expect_all(c.outcomes, SYMM_OK);
    for (int rank = 0; rank < 2; ++rank) {
      int32_t device = -7;
      EXPECT_EQ(SYMM_OK, symm_comm_device(c.comm[static_cast<size_t>(rank)], &device));
      EXPECT_EQ(rank, device);
    }
    free_all(c);
    EXPECT_TRUE(nothing_left(fake));
  }
}

TEST(CudaCreate, OneRankNeedsNoArena) {
  FakeCuda fake;
  Communicator c = create({1});
  expect_all(c.outcomes, SYMM_OK);
  EXPECT_EQ(0, fake.alive().allocations);
  void* memory = fake.malloc(1, 64);
  void* other = fake.malloc(1, 64);
  CUstream stream = fake.make_stream(1);
  EXPECT_EQ(SYMM_OK, symm_all_reduce(c.comm[0], memory, other, 16, SYMM_FLOAT32, SYMM_SUM, stream))
      << symm_last_error();
  EXPECT_EQ(SYMM_OK, symm_comm_barrier(c.comm[0], stream));
  EXPECT_TRUE(fake.launches().empty());
  free_all(c);
  fake.destroy_stream(stream);
  fake.free(memory);
  fake.free(other);
  EXPECT_TRUE(nothing_left(fake));
}

TEST(CudaCreate, RanksThatShareAGpuAreRefusedWithTheTable) {
  FakeCuda fake;
  Communicator c = create({1, 1});
  expect_all(c.outcomes, SYMM_INVALID_ARGUMENT, "rank 0 -> GPU 1");
  expect_all(c.outcomes, SYMM_INVALID_ARGUMENT, "SYMM_COMM_SHARE_GPU");
  EXPECT_TRUE(nothing_left(fake));
  c = create({1, 1}, small_options(SYMM_COMM_SHARE_GPU));
  expect_all(c.outcomes, SYMM_OK);
  free_all(c);
  EXPECT_TRUE(nothing_left(fake));
}

TEST(CudaCreate, TooFewConnectionsForTheRanksOfAProcessAreRefused) {
  FakeCuda fake;
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
  Communicator c = create({0, 0}, small_options(SYMM_COMM_SHARE_GPU));
  expect_all(c.outcomes, SYMM_INVALID_ARGUMENT, "CUDA_DEVICE_MAX_CONNECTIONS");
  // One rank a GPU is not touched by it.
  c = create({0, 1});
  expect_all(c.outcomes, SYMM_OK);
  free_all(c);
  unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
  EXPECT_TRUE(nothing_left(fake));
}

TEST(CudaCreate, AnIntegratedGpuIsRefusedOnEveryRank) {
  FakeCuda fake;
  fake.set_integrated(1, true);
  Communicator c = create({0, 1});
  expect_all(c.outcomes, SYMM_UNSUPPORTED, "integrated");
  EXPECT_TRUE(nothing_left(fake));
}

TEST(CudaCreate, GpusThatCannotReachEachOtherAreRefused) {
  FakeCuda fake;
  fake.set_peer_access(false);
  Communicator c = create({0, 1});
  expect_all(c.outcomes, SYMM_UNSUPPORTED, "peer access");
  EXPECT_TRUE(nothing_left(fake));
}

TEST(CudaCreate, APathThatBringsOtherBytesIsFound) {
  FakeCuda fake;
  fake.corrupt_peers(true);
  Communicator c = create({0, 1});
  expect_all(c.outcomes, SYMM_UNSUPPORTED, "reads back as something else");
  EXPECT_TRUE(nothing_left(fake));
}

TEST(CudaCreate, AnOrdinalThatDoesNotExistIsTheCallersFault) {
  FakeCuda fake;
  Communicator c = create({0, 2});
  expect_all(c.outcomes, SYMM_INVALID_ARGUMENT, "2 GPUs are visible");
  EXPECT_TRUE(nothing_left(fake));
}

TEST(CudaCreate, SplitMakesCommunicatorsOfTheirOwn) {
  FakeCuda fake(4);
  Communicator c = create({0, 1, 2, 3});
  expect_all(c.outcomes, SYMM_OK);
  Communicator halves = split(c, [](int rank) { return rank / 2; });
  expect_all(halves.outcomes, SYMM_OK);
  free_all(c);
  Windows w = alloc(halves, {64, 64, 64, 64});
  expect_all(w.outcomes, SYMM_OK);
  free_all(w);
  free_all(halves);
  EXPECT_TRUE(nothing_left(fake));
}

// Whatever fails, once, in whatever call of the driver: every rank fails with the reason, or none
// does, and nothing is left.
class CudaFailure : public ::testing::TestWithParam<CUresult> {};

TEST_P(CudaFailure, OfAnyDriverCallIsEveryRanksAndLeaksNothing) {
  FakeCuda fake;
  // The kernels' modules stay with the context.
  {
    Communicator c = create({0, 1});
    expect_all(c.outcomes, SYMM_OK);
    free_all(c);
  }
  ASSERT_TRUE(nothing_left(fake));
  int failures = 0;
  for (int call = 0;; ++call) {
    void* plain[2] = {fake.malloc(0, 1024), fake.malloc(1, 1024)};
    void* virtual_memory[2] = {fake.map(0, 4 << 20, 2), fake.map(1, 4 << 20, 2)};
    const FakeCuda::Alive before = fake.alive();
    fake.fail_at(call, GetParam());
    {
      Communicator c = create({0, 1});
      const auto same = [&](const std::vector<Outcome>& outcomes) {
        EXPECT_EQ(outcomes[0].status, outcomes[1].status)
            << "call " << call << " (" << fake.failed() << "): " << outcomes[0].message << " | "
            << outcomes[1].message;
        return outcomes[0].status == SYMM_OK;
      };
      bool ok = same(c.outcomes);
      std::vector<Windows> windows;
      if (ok) {
        windows.push_back(alloc(c, {100, 100}));
        ok = same(windows.back().outcomes);
      }
      if (ok) {
        windows.push_back(alloc(c, {3 << 20, 3 << 20}));
        ok = same(windows.back().outcomes);
      }
      if (ok) {
        windows.push_back(register_all(c, {plain[0], plain[1]}, 512));
        ok = same(windows.back().outcomes);
      }
      if (ok) {
        windows.push_back(register_all(c, {virtual_memory[0], virtual_memory[1]}, 4 << 20));
        ok = same(windows.back().outcomes);
      }
      if (!ok) ++failures;
      for (Windows& w : windows) free_all(w);
      free_all(c);
    }
    const bool done = fake.failed().empty();
    EXPECT_TRUE(nothing_left(fake, before)) << "after call " << call << ", " << fake.failed();
    for (int i = 0; i < 2; ++i) {
      fake.free(plain[i]);
      fake.unmap(virtual_memory[i]);
    }
    if (done || HasFailure()) break;
  }
  EXPECT_GT(failures, 50);
}

INSTANTIATE_TEST_SUITE_P(Results, CudaFailure,
                         ::testing::Values(CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN));

}  // namespace
}  // namespace symm::cuda
