// What goes wrong at odd moments around NCCL: errors while it connects, calls that hang in it,
// ranks that leave, windows that come and go, processes that exit; over the fake driver and the
// fake NCCL.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "tests/unit/fake_cuda_nccl.h"

// Ranks are threads here; as processes their environments may differ.
namespace {
thread_local bool forbids_windows = false;
}
extern "C" char* getenv(const char* name) noexcept {
  static auto* real = reinterpret_cast<char* (*)(const char*)>(dlsym(RTLD_NEXT, "getenv"));
  static char zero[] = "0";
  if (forbids_windows && std::strcmp(name, "NCCL_WIN_ENABLE") == 0) return zero;
  return real(name);
}

namespace symm::cuda {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kGranule = 2 << 20;

TEST_F(Apart, AnErrorWhileConnectingAbortsAndKeepsTheMemoryOfWhatRuns) {
  nccl_.enqueue_only = 1;
  fake_.hold_events(true);
  std::thread later([&] {
    // Both ranks have enqueued all that connects them, four sizes, and wait for it.
    EXPECT_TRUE(eventually([&] { return nccl_.reductions == 2 * 4; }));
    nccl_.asynchronous_error = 6;
  });
  Communicator c = create({0, 1}, nccl_options());
  later.join();
  expect_all(c.outcomes, SYMM_NCCL);
  EXPECT_TRUE(eventually([&] { return nccl_.aborted == 2; })) << "destroyed " << nccl_.destroyed;
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_GT(fake_.alive().mappings, 0) << "what the kernels reduce must still be mapped";
  fake_.hold_events(false);
}

TEST_F(Apart, ACallThatHangsInsideNcclEndsAtItsDeadline) {
  symm_comm_options options = nccl_options();
  options.wait_timeout_ms = 300;
  Communicator c = create({0, 1}, options);
  expect_all(c.outcomes, SYMM_OK);
  nccl_.hang_call = "ncclAllReduce";
  nccl_.hang_rank = 0;
  void* memory = fake_.malloc(0, 4);
  const auto start = Clock::now();
  EXPECT_EQ(SYMM_TIMEOUT,
            symm_all_reduce(c.comm[0], memory, memory, 1, SYMM_FLOAT32, SYMM_SUM, streams_[0]));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(8));
  fake_.free(memory);
  free_all(c);
}

TEST_F(Apart, ARankThatLeavesAfterALongCallHarmsNobody) {
  Communicator c = create({0, 1}, nccl_options());
  expect_all(c.outcomes, SYMM_OK);
  nccl_.enqueue_only = 1;
  fake_.hold_events_after(1);
  void* memory = fake_.malloc(0, 4);
  EXPECT_EQ(SYMM_OK,
            symm_all_reduce(c.comm[0], memory, memory, 1, SYMM_FLOAT32, SYMM_SUM, streams_[0]));
  std::this_thread::sleep_for(std::chrono::milliseconds(1300));  // for some late rank
  symm_comm_free(c.comm[1]);
  c.comm[1] = nullptr;
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  fake_.hold_events_after(-1);
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  EXPECT_EQ(SYMM_OK, symm_comm_check(c.comm[0], nullptr)) << symm_last_error();
  fake_.free(memory);
  free_all(c);
}

TEST_F(Inside, NoIdIsMadeThatIsNotUsed) {
  // NCCL serves each from a thread and a socket that only its use ends.
  make();
  EXPECT_EQ(1, nccl_.unique_ids);
}

TEST_F(Inside, AVariableOfOneRankOnlyIsAgreedOnBeforeNcclIsEntered) {
  make(3000);
  Windows w = none();
  const auto start = Clock::now();
  each_rank(2, [&](int rank) {
    forbids_windows = rank == 1;
    alloc_one(w, rank, 4096);
  });
  expect_all(w.outcomes, SYMM_OK);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(2));
  EXPECT_EQ(0, nccl_.registrations);
  EXPECT_TRUE(contains(report_of(c_.comm[0]), "rank 1: NCCL_WIN_ENABLE=0"));
  free_all(w);
}

// NCCL places windows by what each rank still has.
TEST_F(Inside, WindowsComeAndGoInNcclInOneOrderOnEveryRank) {
  make();
  Windows a = alloc_nccl(kGranule);
  Windows b = alloc_nccl(kGranule);
  expect_all(b.outcomes, SYMM_OK);
  symm_window_free(a.window[0]);
  symm_window_free(b.window[1]);
  Windows c = alloc_nccl(kGranule);
  symm_window_free(b.window[0]);
  symm_window_free(a.window[1]);
  Windows d = alloc_nccl(kGranule);
  expect_all(d.outcomes, SYMM_OK);
  EXPECT_STREQ("RRRDDR", nccl_.order[0]);
  EXPECT_STREQ(nccl_.order[0], nccl_.order[1]);
  free_all(c);
  free_all(d);
}

TEST_F(Inside, AWindowThatIsFreedWhileAnotherIsMadeIsNoSecondCallOfNccl) {
  make();
  Windows a = alloc_nccl(kGranule);
  expect_all(a.outcomes, SYMM_OK);
  Windows b = none();
  nccl_.hang_call = "ncclCommWindowRegister";
  nccl_.hang_rank = 1;
  std::thread frees([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    free_all(a);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    nccl_.release();
  });
  each_rank(2, [&](int rank) { alloc_one(b, rank, kGranule); });
  frees.join();
  free_all(b);
  EXPECT_EQ(0, nccl_.overlapping);
}

TEST_F(Inside, OtherMemoryAtTheSameAddressIsRegisteredAnew) {
  make();
  int same = 0;
  for (int turn = 0; turn < 20; ++turn) {
    void* memory[2] = {fake_.map(0, 2 * kGranule, 1), fake_.map(1, 2 * kGranule, 1)};
    Windows w = register_nccl({memory[0], memory[1]}, kGranule);
    expect_all(w.outcomes, SYMM_OK);
    const int before = nccl_.registrations;
    free_all(w);
    for (void* one : memory) fake_.unmap(one);
    void* other[2] = {fake_.map(0, 2 * kGranule, 1), fake_.map(1, 2 * kGranule, 1)};
    if (other[0] == memory[0] && other[1] == memory[1]) {
      ++same;
      Windows x = register_nccl({other[0], other[1]}, kGranule);
      expect_all(x.outcomes, SYMM_OK);
      EXPECT_EQ(before + 2, nccl_.registrations);
      free_all(x);
    }
    for (void* one : other) fake_.unmap(one);
  }
  EXPECT_GT(same, 0);
}

TEST(NcclHierarchy, ACallThatFailsBetweenDomainsKeepsWhatItEnqueuedInThem) {
  FakeCuda fake(4);
  FakeNccl& nccl = fake_nccl_of();
  nccl.reset();
  setenv("SYMM_DOMAIN_RANKS", "2", 1);
  std::vector<CUstream> streams;
  std::vector<void*> memory;
  for (int gpu = 0; gpu < 4; ++gpu) {
    streams.push_back(fake.make_stream(gpu));
    memory.push_back(fake.malloc(gpu, 4096));
  }
  Communicator c = create({0, 1, 2, 3}, nccl_options());
  expect_all(c.outcomes, SYMM_OK);
  nccl.fail_call = "ncclAllReduce";
  nccl.fail_rank = 0;  // alone: another domain's failure could be here before this one's call
  nccl.fail_result = 3;
  fake.hold_events(true);
  std::vector<Outcome> outcomes(4);
  each_rank(4, [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    outcomes[r] = outcome(
        symm_all_reduce(c.comm[r], memory[r], memory[r], 10, SYMM_FLOAT32, SYMM_SUM, streams[r]));
  });
  EXPECT_EQ(SYMM_NCCL, outcomes[0].status) << outcomes[0].message;
  EXPECT_EQ(std::string::npos, outcomes[0].message.find("within the peer domain"));
  EXPECT_FALSE(fake.launches().empty());
  free_all(c);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  for (const auto& launch : fake.launches()) {
    // Where its kernel writes, for all that is known, must still be there.
    const volatile std::byte& first = *launch.params.own;
    EXPECT_EQ(std::byte{0}, std::byte{first} & std::byte{0});
  }
  EXPECT_GT(fake.alive().mappings, 0);
  fake.hold_events(false);
  for (void* one : memory) fake.free(one);
  for (CUstream stream : streams) fake.destroy_stream(stream);
  nccl.release();
  EXPECT_TRUE(nothing_left(fake));
  unsetenv("SYMM_DOMAIN_RANKS");
}

void free_and_exit() {
  static const FakeCuda fake(2);
  FakeNccl& nccl = fake_nccl_of();
  Communicator c = create({0, 1}, nccl_options(SYMM_COMM_NCCL));
  nccl.slow_destroy_ms = 300;
  free_all(c);
  if (!eventually([&] { return nccl.destroying > 0; })) std::exit(2);
  std::exit(c.outcomes[0].status == SYMM_OK ? 0 : 1);
}
TEST(NcclExitDeathTest, WaitsForCommunicatorsThatEnd) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(free_and_exit(), ::testing::ExitedWithCode(0), "destroyed");
}

// Handlers run in the reverse of the order in which they came: NCCL's come late where symm loads
// it, after a communicator that had none inside.
void load_late_and_exit(bool free) {
  static const FakeCuda fake(2);
  // Comes last, so that what goes on behind NCCL's back is seen.
  std::atexit([] { std::this_thread::sleep_for(std::chrono::milliseconds(200)); });
  Communicator without = create({0, 1});
  symm_comm_options options = nccl_options(SYMM_COMM_NCCL);
  options.name = "with";
  Communicator c = create({0, 1}, options);
  FakeNccl& nccl = fake_nccl_of();
  nccl.slow_destroy_ms = 300;
  if (free) {
    free_all(c);
    if (!eventually([&] { return nccl.destroying > 0; })) std::exit(2);
  }
  std::exit(c.outcomes[0].status == SYMM_OK && without.outcomes[0].status == SYMM_OK ? 0 : 1);
}
TEST(NcclExitDeathTest, ComesToWhatSymmDoesInNcclBeforeItComesToNccl) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(load_late_and_exit(true), ::testing::ExitedWithCode(0), "destroyed");
}
TEST(NcclExitDeathTest, LeavesWhatIsStillUsedToNccl) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(load_late_and_exit(false), ::testing::ExitedWithCode(0), "^$");
}

void leave_behind_and_exit() {
  static const FakeCuda fake(2);
  FakeNccl& nccl = fake_nccl_of();
  std::atexit([] { _exit(0); });  // after symm's handler, before the fake's condition variable goes
  nccl.hang_call = "ncclCommInitRankConfig";
  nccl.hang_rank = 1;
  symm_comm_options options = nccl_options(SYMM_COMM_NCCL);
  options.timeout_ms = 500;
  Communicator failed = create({0, 1}, options);
  nccl.hang_call = nullptr;
  for (int i = 0; i < 3; ++i) {
    if (create({0, 1}).outcomes[0].status != SYMM_OK) _exit(3);
  }
  std::exit(failed.outcomes[0].status == SYMM_TIMEOUT ? 0 : 1);
}
TEST(NcclExitDeathTest, IsNotDelayedByEveryCommunicator) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto start = Clock::now();
  EXPECT_EXIT(leave_behind_and_exit(), ::testing::ExitedWithCode(0), "");
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(8));
}

}  // namespace
}  // namespace symm::cuda
