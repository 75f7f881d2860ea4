// Ranks in several peer domains, over the fake driver and the fake NCCL: what goes through NCCL,
// and what becomes of it when something fails.
#include "tests/unit/fake_cuda_nccl.h"
#include "core/cuda/device.h"
#include "core/cuda/domains.h"

namespace symm::cuda {
namespace {

using Clock = std::chrono::steady_clock;

TEST_F(Apart, ReduceThroughNcclAndSaySo) {
  Communicator c = create({0, 1}, nccl_options());
  expect_all(c.outcomes, SYMM_OK);
  const Reduction r = reduce(fake_, c, streams_);
  expect_all(r.outcomes, SYMM_OK);
  for (float* output : r.output) {
    for (size_t i = 0; i < Reduction::kCount; ++i) {
      ASSERT_EQ(static_cast<float>(3 * (i + 1)), output[i]) << i;
    }
    fake_.free(output);
  }
  EXPECT_TRUE(fake_.launches().empty());
  EXPECT_TRUE(contains(plan_of(c.comm[0]), "\"algorithm\":\"nccl\""));
  EXPECT_TRUE(contains(plan_of(c.comm[0]), "order of operands is NCCL's"));
  EXPECT_TRUE(contains(plan_of(c.comm[0]), "SYMM_DOMAIN_RANKS=1 keeps rank 0 and rank 1 apart"));
  const std::string report = report_of(c.comm[1]);
  EXPECT_TRUE(contains(report, "\"domains\":2"));
  EXPECT_TRUE(contains(report, "\"path\":\"nccl\""));
  EXPECT_TRUE(contains(report, "\"version\":\"2.28.9\""));
  void* inside = nullptr;
  EXPECT_EQ(SYMM_OK, symm_comm_nccl(c.comm[0], &inside)) << symm_last_error();
  EXPECT_NE(nullptr, inside);
  free_all(c);
  EXPECT_TRUE(eventually([&] { return nccl_.destroyed == 2; }));
  EXPECT_EQ(0, nccl_.aborted);
}

TEST_F(Apart, BarriersGoThroughNcclAndEmptyCallsDoNot) {
  Communicator c = create({0, 1}, nccl_options());
  expect_all(c.outcomes, SYMM_OK);
  const int before = nccl_.reductions;
  each_rank(2, [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    EXPECT_EQ(SYMM_OK, symm_comm_barrier(c.comm[r], streams_[r])) << symm_last_error();
    EXPECT_EQ(SYMM_OK,
              symm_all_reduce(c.comm[r], nullptr, nullptr, 0, SYMM_FLOAT32, SYMM_SUM, streams_[r]))
        << symm_last_error();
  });
  EXPECT_EQ(before + 2, nccl_.reductions);
  free_all(c);
}

TEST_F(Apart, AreConnectedBeforeTheFirstCall) {
  Communicator c = create({0, 1}, nccl_options());
  expect_all(c.outcomes, SYMM_OK);
  // A first call inside a capture could not connect, whatever its size.
  EXPECT_GE(nccl_.reductions, 2 * 3);
  free_all(c);
}

TEST_F(Apart, StrictRefusesWhatNcclCannotPromise) {
  Communicator c = create({0, 1}, nccl_options(SYMM_COMM_STRICT));
  expect_all(c.outcomes, SYMM_UNSUPPORTED, "order of operands is not 0..N-1");
  expect_all(c.outcomes, SYMM_UNSUPPORTED, "rank 0 | rank 1");
  EXPECT_EQ(0, nccl_.initialised);
}

TEST_F(Apart, RanksThatShareAGpuCannotHaveNcclBetweenThem) {
  Communicator c = create({0, 0}, nccl_options(SYMM_COMM_SHARE_GPU));
  expect_all(c.outcomes, SYMM_UNSUPPORTED, "refuses ranks that share a GPU");
}

TEST_F(Apart, HaveNoWindowsButTheirDomainsDo) {
  Communicator c = create({0, 1}, nccl_options());
  expect_all(c.outcomes, SYMM_OK);
  Windows w = alloc(c, {64, 64});
  expect_all(w.outcomes, SYMM_UNSUPPORTED, "split the communicator by domain");
  expect_all(check_all(c), SYMM_OK);
  Communicator halves = split(c, [](int rank) { return rank; });
  expect_all(halves.outcomes, SYMM_OK);
  w = alloc(halves, {64, 64});
  expect_all(w.outcomes, SYMM_OK);
  free_all(w);
  free_all(halves);
  free_all(c);
}

TEST_F(Apart, ALateRankIsWaitedFor) {
  const std::string address = new_address();
  const symm_comm_options options = nccl_options();
  Communicator c;
  c.comm.resize(2, nullptr);
  c.outcomes.resize(2);
  each_rank(2, [&](int rank) {
    const auto i = static_cast<size_t>(rank);
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    c.outcomes[i] = outcome(symm_comm_create(address.c_str(), rank, 2, rank, &options, &c.comm[i]));
  });
  expect_all(c.outcomes, SYMM_OK);
  free_all(c);
}

// Whatever fails in NCCL on one rank: every rank fails with it, soon, also those that wait for that
// rank inside NCCL.
TEST_F(Apart, AFailureOfNcclOnOneRankIsEveryRanks) {
  struct Row {
    const char* call;
    int rank;
  };
  for (const Row& row :
       {Row{"ncclGetUniqueId", 0}, Row{"ncclCommInitRankConfig", 0},
        Row{"ncclCommInitRankConfig", 1}, Row{"ncclAllReduce", 0}, Row{"ncclAllReduce", 1}}) {
    nccl_.fail_call = row.call;
    nccl_.fail_rank = row.rank;
    nccl_.fail_result = 6;
    const auto start = Clock::now();
    Communicator c = create({0, 1}, nccl_options());
    expect_all(c.outcomes, SYMM_NCCL, row.call);
    expect_all(c.outcomes, SYMM_NCCL, "remote process exited");
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(5)) << row.call << ' ' << row.rank;
    nccl_.reset();
  }
  Communicator c = create({0, 1}, nccl_options());
  expect_all(c.outcomes, SYMM_OK);
  free_all(c);
}

TEST_F(Apart, ACreationThatHangsInNcclTimesOutOnEveryRank) {
  for (const char* call : {"ncclCommInitRankConfig", "ncclAllReduce"}) {
    nccl_.hang_call = call;
    nccl_.hang_rank = 1;
    symm_comm_options options = nccl_options();
    options.timeout_ms = 1500;  // for what comes before NCCL too, on a busy machine
    const auto start = Clock::now();
    Communicator c = create({0, 1}, options);
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(10));
    expect_all(c.outcomes, SYMM_TIMEOUT, "NCCL_SOCKET_IFNAME");
    // The process goes on, with what hangs left behind.
    nccl_.hang_call = nullptr;
    c = create({0, 1}, nccl_options());
    expect_all(c.outcomes, SYMM_OK);
    free_all(c);
    nccl_.release();
  }
}

TEST_F(Apart, AnAbortEndsNcclAndAnotherCommunicatorIsMade) {
  for (int turn = 0; turn < 2; ++turn) {
    Communicator c = create({0, 1}, nccl_options());
    expect_all(c.outcomes, SYMM_OK);
    EXPECT_EQ(SYMM_OK, symm_comm_abort(c.comm[1]));
    EXPECT_TRUE(eventually([&] { return nccl_.aborted == 2 * (turn + 1); }));
    expect_all(check_all(c), SYMM_ABORTED);
    void* inside = nullptr;
    EXPECT_EQ(SYMM_ABORTED, symm_comm_nccl(c.comm[0], &inside));
    const Reduction r = reduce(fake_, c, streams_);
    expect_all(r.outcomes, SYMM_ABORTED);
    for (float* output : r.output) fake_.free(output);
    free_all(c);
  }
  EXPECT_EQ(0, nccl_.destroyed);
}

TEST_F(Apart, ACallThatHangsInNcclIsReleasedByAnAbort) {
  Communicator c = create({0, 1}, nccl_options());
  expect_all(c.outcomes, SYMM_OK);
  nccl_.hang_call = "ncclAllReduce";
  nccl_.hang_rank = 0;
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    symm_comm_abort(c.comm[1]);
  });
  const auto start = Clock::now();
  const Reduction r = reduce(fake_, c, streams_);
  other.join();
  EXPECT_EQ(SYMM_ABORTED, r.outcomes[0].status) << r.outcomes[0].message;
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
  for (float* output : r.output) fake_.free(output);
  free_all(c);
}

TEST_F(Apart, ErrorsOfNcclAfterTheCallReachCheckOnEveryRank) {
  Communicator c = create({0, 1}, nccl_options());
  expect_all(c.outcomes, SYMM_OK);
  expect_all(check_all(c), SYMM_OK);
  nccl_.asynchronous_error = 6;
  expect_all(check_all(c), SYMM_NCCL, "remote process exited");
  EXPECT_TRUE(eventually([&] { return nccl_.aborted == 2; }));
  expect_all(check_all(c), SYMM_NCCL);
  free_all(c);
}

TEST_F(Apart, WorkThatDoesNotEndIsAbortedAtItsDeadline) {
  symm_comm_options options = nccl_options();
  options.wait_timeout_ms = 500;
  Communicator c = create({0, 1}, options);
  expect_all(c.outcomes, SYMM_OK);
  nccl_.enqueue_only = 1;
  fake_.hold_events_after(1);  // what is recorded before the call is done, what comes after is not
  void* memory = fake_.malloc(0, 4);
  const auto start = Clock::now();
  EXPECT_EQ(SYMM_OK,
            symm_all_reduce(c.comm[0], memory, memory, 1, SYMM_FLOAT32, SYMM_SUM, streams_[0]));
  EXPECT_TRUE(eventually([&] { return symm_comm_check(c.comm[0], nullptr) != SYMM_OK; }));
  EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(500));
  EXPECT_TRUE(eventually([&] { return nccl_.aborted == 2; }));
  expect_all(check_all(c), SYMM_TIMEOUT, "wait_timeout_ms");
  expect_all(check_all(c), SYMM_TIMEOUT, "symm_all_reduce(count 1, float32, sum)");
  fake_.hold_events_after(-1);
  fake_.free(memory);
  free_all(c);
}

TEST_F(Apart, WorkThatHasNotBegunHasNoDeadline) {
  symm_comm_options options = nccl_options();
  options.wait_timeout_ms = 50;
  Communicator c = create({0, 1}, options);
  expect_all(c.outcomes, SYMM_OK);
  fake_.hold_events_after(0);  // the stream is still at what came before
  const Reduction r = reduce(fake_, c, streams_);
  expect_all(r.outcomes, SYMM_OK);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  expect_all(check_all(c), SYMM_OK);
  fake_.hold_events_after(-1);
  for (float* output : r.output) fake_.free(output);
  free_all(c);
}

TEST_F(Apart, WhoWaitsForARankThatHasLeftIsTold) {
  Communicator c = create({0, 1}, nccl_options());
  expect_all(c.outcomes, SYMM_OK);
  symm_comm_free(c.comm[1]);
  c.comm[1] = nullptr;
  nccl_.enqueue_only = 1;
  fake_.hold_events_after(1);
  void* memory = fake_.malloc(0, 4);
  EXPECT_EQ(SYMM_OK,
            symm_all_reduce(c.comm[0], memory, memory, 1, SYMM_FLOAT32, SYMM_SUM, streams_[0]));
  int32_t rank = -1;
  EXPECT_TRUE(eventually([&] { return symm_comm_check(c.comm[0], &rank) == SYMM_PEER; }));
  EXPECT_EQ(1, rank);
  fake_.hold_events_after(-1);
  fake_.free(memory);
  free_all(c);
}

TEST_F(Apart, GraphsKeepNcclAliveUntilTheyAreGone) {
  Communicator c = create({0, 1}, nccl_options());
  expect_all(c.outcomes, SYMM_OK);
  nccl_.enqueue_only = 1;
  std::vector<CUgraph> graphs;
  std::vector<void*> memory;
  for (size_t rank = 0; rank < 2; ++rank) {
    memory.push_back(fake_.malloc(static_cast<int>(rank), 64));
    graphs.push_back(fake_.begin_capture(streams_[rank]));
    fake_.clear_log();
    EXPECT_EQ(SYMM_OK, symm_all_reduce(c.comm[rank], memory[rank], memory[rank], 1, SYMM_FLOAT32,
                                       SYMM_SUM, streams_[rank]))
        << symm_last_error();
    EXPECT_EQ(std::vector<std::string>{}, fake_.log()) << "no event is recorded in a capture";
    fake_.end_capture(graphs[rank]);
  }
  symm_comm_free(c.comm[0]);
  c.comm[0] = nullptr;
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(2, nccl_.communicators) << "the graph has work of it";
  for (CUgraph graph : graphs) fake_.destroy_graph(graph);
  free_all(c);
  EXPECT_TRUE(eventually([&] { return nccl_.destroyed == 2; }));
  for (void* one : memory) fake_.free(one);
}

TEST_F(Apart, EightBitFloatsNeedGpusThatNcclAddsThemOn) {
  fake_.set_capability(80);
  Communicator c = create({0, 1}, nccl_options());
  expect_all(c.outcomes, SYMM_OK);
  void* memory = fake_.malloc(0, 64);
  EXPECT_EQ(SYMM_UNSUPPORTED,
            symm_all_reduce(c.comm[0], memory, memory, 1, SYMM_FLOAT8_E4M3, SYMM_SUM, streams_[0]));
  EXPECT_TRUE(contains(symm_last_error(), "compute capability 9.0"));
  EXPECT_EQ(SYMM_OK, symm_comm_check(c.comm[0], nullptr));
  fake_.free(memory);
  free_all(c);
}

TEST_F(Apart, EightBitFloatsNeedAVersionOfNcclThatHasThem) {
  nccl_.version = 22305;
  Communicator c = create({0, 1}, nccl_options());
  expect_all(c.outcomes, SYMM_OK);
  void* memory = fake_.malloc(0, 64);
  EXPECT_EQ(SYMM_UNSUPPORTED,
            symm_all_reduce(c.comm[0], memory, memory, 1, SYMM_FLOAT8_E4M3, SYMM_SUM, streams_[0]));
  EXPECT_TRUE(contains(symm_last_error(), "NCCL 2.23.5 does not have it; 2.24.0 does"));
  EXPECT_EQ(SYMM_OK, symm_comm_check(c.comm[0], nullptr));
  fake_.free(memory);
  free_all(c);
}

TEST_F(Apart, AVariableThatMakesNcclNonBlockingChangesNothing) {
  nccl_.in_progress = 3;  // as NCCL_COMM_BLOCKING=0 does
  Communicator c = create({0, 1}, nccl_options());
  expect_all(c.outcomes, SYMM_OK);
  const Reduction r = reduce(fake_, c, streams_);
  expect_all(r.outcomes, SYMM_OK);
  EXPECT_EQ(3.0f, r.output[1][0]);
  expect_all(check_all(c), SYMM_OK);
  for (float* output : r.output) fake_.free(output);
  free_all(c);
}

TEST_F(Apart, AVersionWithoutWindowsReducesToo) {
  nccl_.version = 22602;
  Communicator c = create({0, 1}, nccl_options());
  expect_all(c.outcomes, SYMM_OK);
  EXPECT_TRUE(contains(report_of(c.comm[0]), "NCCL 2.26.2 has none"));
  free_all(c);
}

TEST_F(Apart, ADomainSizeThatIsNoneIsRefused) {
  for (const char* value : {"0", "-1", "two", "1x"}) {
    setenv("SYMM_DOMAIN_RANKS", value, 1);
    Communicator c = create({0, 1}, nccl_options());
    expect_all(c.outcomes, SYMM_INVALID_ARGUMENT, "SYMM_DOMAIN_RANKS is");
  }
}

TEST_F(Apart, AnyFailureOfTheDriverIsEveryRanksAndLeaksNothing) {
  {
    Communicator c = create({0, 1}, nccl_options());
    expect_all(c.outcomes, SYMM_OK);
    free_all(c);
  }
  FakeCuda::Alive before;
  before.streams = 2;
  ASSERT_TRUE(nothing_left(fake_, before));
  int failures = 0;
  for (int call = 0;; ++call) {
    fake_.fail_at(call, CUDA_ERROR_UNKNOWN);
    Communicator c = create({0, 1}, nccl_options());
    EXPECT_EQ(c.outcomes[0].status, c.outcomes[1].status)
        << "call " << call << " (" << fake_.failed() << "): " << c.outcomes[0].message << " | "
        << c.outcomes[1].message;
    if (c.outcomes[0].status != SYMM_OK) ++failures;
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

TEST(PeerDomains, AreMadeOfRanksThatAllReachEachOther) {
  std::vector<GpuInfo> gpus(4);
  std::vector<RankInfo> roster(4);
  for (size_t i = 0; i < 4; ++i) {
    gpus[i].uuid.fill(static_cast<char>('a' + i));
    gpus[i].ordinal = static_cast<int>(i);
    roster[i].host_id = roster[i].host_name = "h";
  }
  EXPECT_EQ(1, find_domains(gpus, roster).count);
  EXPECT_EQ("", find_domains(gpus, roster).why);
  // One side is enough; and 0-1, 1-2 do not make 0-2.
  gpus[2].unreachable = {gpus[0].uuid};
  Domains domains = find_domains(gpus, roster);
  EXPECT_EQ((std::vector<int>{0, 0, 1, 0}), domains.of_rank);
  EXPECT_EQ("ranks 0, 1 and 3 | rank 2", domains.text());
  EXPECT_TRUE(contains(domains.why, "rank 2's GPU 2 cannot access the memory of rank 0's GPU 0"));
  gpus[2].unreachable.clear();
  roster[1].host_id = roster[3].host_id = "other";
  roster[1].host_name = roster[3].host_name = "g";
  domains = find_domains(gpus, roster);
  EXPECT_EQ((std::vector<int>{0, 1, 0, 1}), domains.of_rank);
  EXPECT_EQ("rank 0 is on h and rank 1 on g", domains.why);
}

}  // namespace
}  // namespace symm::cuda
