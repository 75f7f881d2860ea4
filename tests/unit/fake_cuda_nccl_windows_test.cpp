// One peer domain that has NCCL inside as well: for the caller's own use, with windows that are
// NCCL's too; and GPUs that turn out to be several domains.
#include "tests/unit/fake_cuda_nccl.h"

namespace symm::cuda {
namespace {

constexpr size_t kGranule = 2 << 20;

class InsideWindows : public Inside {
 protected:
  void SetUp() override { make(); }
};

TEST_F(InsideWindows, OneDomainKeepsItsOwnKernels) {
  const Reduction r = reduce(fake_, c_, streams_);
  expect_all(r.outcomes, SYMM_OK);
  EXPECT_EQ(2u, fake_.launches().size());
  for (float* output : r.output) fake_.free(output);
  void* inside[2] = {};
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(SYMM_OK, symm_comm_nccl(c_.comm[rank], &inside[rank])) << symm_last_error();
  }
  EXPECT_NE(inside[0], inside[1]);
}

TEST_F(InsideWindows, ACommunicatorThatWasNotAskedToHasNone) {
  Communicator c = create({0, 1});
  expect_all(c.outcomes, SYMM_OK);
  void* inside = &c;
  EXPECT_EQ(SYMM_UNSUPPORTED, symm_comm_nccl(c.comm[0], &inside));
  EXPECT_TRUE(contains(symm_last_error(), "SYMM_COMM_NCCL"));
  EXPECT_EQ(&c, inside);
  Communicator mine = std::move(c_);
  c_ = c;
  Windows w = alloc_nccl(64);
  expect_all(w.outcomes, SYMM_UNSUPPORTED, "SYMM_COMM_NCCL");
  w = alloc(c_, {64, 64});
  expect_all(w.outcomes, SYMM_OK);
  free_all(w);
  free_all(c_);
  c_ = std::move(mine);
}

TEST_F(InsideWindows, ASplitHasItsOwn) {
  Communicator child = split(c_, [](int) { return 0; });
  expect_all(child.outcomes, SYMM_OK);
  void* parents = nullptr;
  void* childs = nullptr;
  EXPECT_EQ(SYMM_OK, symm_comm_nccl(c_.comm[0], &parents));
  EXPECT_EQ(SYMM_OK, symm_comm_nccl(child.comm[0], &childs));
  EXPECT_NE(parents, childs);
  symm_comm_abort(child.comm[0]);
  EXPECT_TRUE(eventually([&] { return nccl_.aborted == 2; }));
  expect_all(check_all(c_), SYMM_OK);
  free_all(child);
}

TEST_F(InsideWindows, WindowsAreNcclsTooUntilTheyAreFreed) {
  for (const size_t bytes : {size_t{4}, kGranule, 3 * kGranule + 8}) {
    Windows w = alloc_nccl(bytes);
    expect_all(w.outcomes, SYMM_OK);
    // Those of the turn before have gone.
    EXPECT_EQ(2, nccl_.windows);
    // Where NCCL takes windows from.
    EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(data(w.window[0], 0)) % 4096);
    free_all(w);
    EXPECT_EQ(2, nccl_.windows) << "the caller may be in a call of NCCL";
  }
  EXPECT_EQ(2, windows_beside_another());
  const int before = nccl_.registrations;
  Windows empty = alloc_nccl(0);
  expect_all(empty.outcomes, SYMM_OK);
  EXPECT_EQ(before, nccl_.registrations);
  free_all(empty);
  EXPECT_TRUE(contains(report_of(c_.comm[0]), "\"inside\":true"));
}

TEST_F(InsideWindows, ThousandsOfThemLeaveNothingBehind) {
  const FakeCuda::Alive before = fake_.alive();
  for (int i = 0; i < 200; ++i) {
    Windows w = alloc_nccl(4096);
    ASSERT_EQ(SYMM_OK, w.outcomes[0].status) << w.outcomes[0].message;
    free_all(w);
    const int most = before.allocations + 12;
    if (fake_.alive().allocations > most) settle();  // the thread that gives back is behind
    ASSERT_LE(fake_.alive().allocations, most) << i;
  }
  EXPECT_LE(nccl_.windows, 2);
}

TEST_F(InsideWindows, TheWishForAnNcclWindowMustAgree) {
  Windows w = none();
  each_rank(2, [&](int rank) { alloc_one(w, rank, 4096, rank == 0); });
  expect_all(w.outcomes, SYMM_INVALID_ARGUMENT, "SYMM_WINDOW_NCCL is set on rank 0 and not set on");
  expect_all(check_all(c_), SYMM_OK);
}

TEST_F(InsideWindows, AWindowThatNcclDoesNotGiveIsStillAWindow) {
  for (const int none : {1, -2}) {
    nccl_.null_window_rank = none;
    Windows w = alloc_nccl(4096);
    expect_all(w.outcomes, SYMM_OK);
    EXPECT_EQ(none == 1 ? 1 : 0, nccl_.windows);
    EXPECT_TRUE(contains(report_of(c_.comm[0]), "succeeded and gave none"));
    data(w.window[0], 1)[5] = 7;
    EXPECT_EQ(7, data(w.window[1], 1)[5]);
    free_all(w);
  }
  nccl_.null_window_rank = -1;
  EXPECT_EQ(2, windows_beside_another()) << "one that not every rank has has been given back";
}

TEST_F(InsideWindows, NcclIsNotAskedForWindowsThatItsVariablesForbid) {
  for (const char* variable : {"NCCL_WIN_ENABLE", "NCCL_CUMEM_ENABLE"}) {
    setenv(variable, "0", 1);
    Windows w = alloc_nccl(4096);
    expect_all(w.outcomes, SYMM_OK);
    EXPECT_TRUE(contains(report_of(c_.comm[1]), std::string(variable) + "=0 switches them off"));
    unsetenv(variable);
    free_all(w);
  }
  EXPECT_EQ(0, nccl_.registrations);
}

TEST_F(InsideWindows, RegisteredMemoryIsRegisteredWithNcclOnce) {
  void* memory[2] = {fake_.map(0, 2 * kGranule, 1), fake_.map(1, 2 * kGranule, 1)};
  Windows first = register_nccl({memory[0], memory[1]}, kGranule);
  expect_all(first.outcomes, SYMM_OK);
  Windows second = register_nccl({memory[0], memory[1]}, kGranule);
  expect_all(second.outcomes, SYMM_OK);
  EXPECT_EQ(2, nccl_.windows);
  EXPECT_EQ(2, nccl_.registrations);
  free_all(first);
  EXPECT_EQ(4, windows_beside_another()) << "the second window needs them";
  free_all(second);
  EXPECT_EQ(2, windows_beside_another());
  Windows third = register_nccl({memory[0], memory[1]}, kGranule);
  expect_all(third.outcomes, SYMM_OK);
  EXPECT_EQ(8, nccl_.registrations);
  free_all(third);
  for (void* one : memory) fake_.unmap(one);
}

TEST_F(InsideWindows, MemoryThatNcclCannotTakeIsRefusedOnEveryRank) {
  void* plain[2] = {fake_.malloc(0, 4096), fake_.malloc(1, 4096)};
  void* memory[2] = {fake_.map(0, kGranule, 1), fake_.map(1, kGranule, 1)};
  Windows w = register_nccl({memory[0], plain[1]}, 1024);
  expect_all(w.outcomes, SYMM_UNSUPPORTED, "memory of cudaMalloc");
  void* parts = fake_.map(1, 2 * kGranule, 2);
  w = register_nccl({memory[0], static_cast<char*>(parts) + kGranule - 4096}, 8192);
  expect_all(w.outcomes, SYMM_UNSUPPORTED, "made of 2 allocations");
  fake_.unmap(parts);
  w = register_nccl({memory[0], static_cast<char*>(memory[1]) + 256}, 1024);
  expect_all(w.outcomes, SYMM_UNSUPPORTED, "multiple of 4096");
  w = register_nccl({memory[0], static_cast<char*>(memory[1]) + 4096}, 1024);
  expect_all(w.outcomes, SYMM_UNSUPPORTED, "at the same place on every rank");
  EXPECT_EQ(0, nccl_.registrations);
  expect_all(check_all(c_), SYMM_OK);
  for (void* one : plain) fake_.free(one);
  for (void* one : memory) fake_.unmap(one);
}

TEST_F(InsideWindows, AFailureToRegisterEndsTheCommunicatorOnEveryRank) {
  nccl_.fail_call = "ncclCommWindowRegister";
  nccl_.fail_rank = 1;
  nccl_.fail_result = 3;
  Windows w = alloc_nccl(4096);
  expect_all(w.outcomes, SYMM_NCCL, "ncclCommWindowRegister");
  expect_all(check_all(c_), SYMM_NCCL);
  EXPECT_TRUE(eventually([&] { return nccl_.aborted == 2; }));
}

TEST_F(InsideWindows, ARegistrationThatHangsTimesOutOnEveryRank) {
  free_all(c_);
  make(3000);
  nccl_.hang_call = "ncclCommWindowRegister";
  nccl_.hang_rank = 0;
  Windows w = alloc_nccl(4096);
  expect_all(w.outcomes, SYMM_TIMEOUT, "ncclCommWindowRegister");
  EXPECT_TRUE(eventually([&] { return nccl_.aborted == 2; }));
  EXPECT_EQ(0, nccl_.ended_inside) << "the abort frees what the registration is at work on";
}

// Kernels of NCCL for windows that start beside the one before them, and do not wait for it.
class StartsEarly : public Inside {
 protected:
  // What is enqueued between a call of every rank and what NCCL may be given next.
  int between() {
    fake_.clear_log();
    const Reduction r = reduce(fake_, c_, streams_);
    expect_all(r.outcomes, SYMM_OK);
    for (float* output : r.output) fake_.free(output);
    int count = 0;
    for (const std::string& line : fake_.log()) count += line.rfind("set ", 0) == 0;
    return count;
  }
};

TEST_F(StartsEarly, CallsAreKeptApartFromThoseOf2_28) {
  make();
  EXPECT_EQ(0, between()) << "without windows there are no such kernels";
  Windows w = alloc_nccl(4096);
  EXPECT_EQ(2, between());
  free_all(w);
}

TEST_F(StartsEarly, LaterVersionsWaitThemselves) {
  nccl_.version = 23006;
  make();
  Windows w = alloc_nccl(4096);
  EXPECT_EQ(0, between());
  free_all(w);
}

// ---- Domains that are found, not made up --------------------------------------------------------

class Found : public Apart {
 protected:
  Found() { unsetenv("SYMM_DOMAIN_RANKS"); }
};

TEST_F(Found, GpusWithoutPeerAccessUseNccl) {
  fake_.set_peer_access(1, 0, false);
  Communicator c = create({0, 1}, nccl_options());
  expect_all(c.outcomes, SYMM_OK);
  EXPECT_TRUE(contains(plan_of(c.comm[0]), "rank 1's GPU 1 cannot access the memory of rank 0's"));
  const Reduction r = reduce(fake_, c, streams_);
  expect_all(r.outcomes, SYMM_OK);
  EXPECT_EQ(3.0f, r.output[0][0]);
  EXPECT_TRUE(fake_.launches().empty());
  for (float* output : r.output) fake_.free(output);
  free_all(c);
}

TEST_F(Found, OneRankCanHaveNcclInside) {
  Communicator c = create({0}, nccl_options(SYMM_COMM_NCCL));
  expect_all(c.outcomes, SYMM_OK);
  void* inside = nullptr;
  EXPECT_EQ(SYMM_OK, symm_comm_nccl(c.comm[0], &inside)) << symm_last_error();
  EXPECT_NE(nullptr, inside);
  free_all(c);
}

}  // namespace
}  // namespace symm::cuda
