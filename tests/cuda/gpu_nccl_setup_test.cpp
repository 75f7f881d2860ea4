// NCCL inside a communicator: a rendezvous that is the very first use of NCCL, on any group and
// after whatever came before, and windows that are NCCL's too, or say why they are not.
#include <memory>

#include "tests/cuda/gpu_nccl.h"

namespace symm_test {
namespace {

class GpuNcclSetup : public NeedsNccl {};
class GpuNcclWindows : public NeedsNccl {};

// ---- The first use ------------------------------------------------------------------------------

// The world, and then all of its ranks again in the other order.
void use_world(const Rank& rank) {
  const Comm comm = create_on_gpu(rank, nccl_options("world"));
  ASSERT_TRUE(comm);
  expect_has_nccl(comm.get());
  if (testing::Test::HasFatalFailure()) return;
  const Comm reversed = split(comm.get(), 0, rank.size - rank.rank);
  ASSERT_TRUE(reversed);
  EXPECT_EQ(rank.size - 1 - rank.rank, rank_of(reversed.get()));
  expect_has_nccl(reversed.get(), 5);
  if (testing::Test::HasFatalFailure()) return;
  expect_has_nccl(comm.get(), 9);
}

void world(Rank& rank) {
  if (rank.argument == "late" && rank.rank == 1) sleep_ms(3000);
  use_world(rank);
}

// A communicator before it, with NCCL inside or without, that is freed or aborted at once.
void after_another(Rank& rank) {
  const bool plain = rank.argument.find("plain") != std::string::npos;
  const bool aborted = rank.argument.find("aborted") != std::string::npos;
  symm_comm_options options = nccl_options("before");
  if (plain) options.flags &= ~static_cast<uint32_t>(SYMM_COMM_NCCL);
  Comm before = create_on_gpu(rank, options);
  ASSERT_TRUE(before);
  if (plain) {
    expect_reduces(before.get());
  } else {
    expect_has_nccl(before.get());
  }
  if (testing::Test::HasFatalFailure()) return;
  if (aborted) {
    int32_t blamed = -1;
    EXPECT_TRUE(rank.rank != 0 || ok(symm_comm_abort(before.get())));
    EXPECT_EQ(SYMM_ABORTED, wait_for_error(before.get(), &blamed));
    EXPECT_EQ(0, blamed);
    void* inside = nullptr;
    EXPECT_TRUE(fails(SYMM_ABORTED, symm_comm_nccl(before.get(), &inside)));
  }
  before.reset();
  use_world(rank);
}

// Three ranks, of which two get NCCL, in the other order: the third has no part in it. It may be on
// the GPU of one of them, where all three could not have NCCL.
void subgroup(Rank& rank) {
  const Comm comm = create_on_gpu(rank, gpu_options(nullptr, kSetUpMs, kWaitMs));
  ASSERT_TRUE(comm);
  const symm_comm_options options = nccl_options();
  const bool member = rank.rank < 2;
  const Comm pair =
      split(comm.get(), member ? 0 : SYMM_NO_COLOR, member ? 1 - rank.rank : 0, &options);
  EXPECT_EQ(member, pair != nullptr);
  if (!pair) return;
  EXPECT_EQ(1 - rank.rank, rank_of(pair.get()));
  expect_has_nccl(pair.get());
  if (testing::Test::HasFatalFailure()) return;
  const Comm alone = split(pair.get(), rank.rank, 0);
  ASSERT_TRUE(alone);
  expect_has_nccl(alone.get(), 5);
  if (testing::Test::HasFatalFailure()) return;
  expect_has_nccl(pair.get(), 9);
}

TEST_F(GpuNcclSetup, OnTheWorld) {
  for (const Domains domains : {Domains::kApart, Domains::kOne}) {
    run(processes(2), world, nccl_run(domains, 50));
  }
}
TEST_F(GpuNcclSetup, OnTheWorldOfThreads) {
  NEEDS_LAUNCHES_OF(threads(2));
  for (const Domains domains : {Domains::kApart, Domains::kOne}) {
    run(threads(2), world, nccl_run(domains, 50));
  }
}
TEST_F(GpuNcclSetup, WithOneRankLate) {
  for (const Domains domains : {Domains::kApart, Domains::kOne}) {
    run(processes(2), world, nccl_run(domains, 50, "late"));
  }
}
TEST_F(GpuNcclSetup, OnASubgroup) { run(processes(3), subgroup, nccl_run(Domains::kOne, 60)); }
TEST_F(GpuNcclSetup, AfterAnotherWasFreed) {
  run(processes(2), after_another, nccl_run(Domains::kApart, 50, "freed"));
  run(processes(2), after_another, nccl_run(Domains::kOne, 50, "freed"));
}
TEST_F(GpuNcclSetup, AfterAnotherWithoutNcclWasFreedOrAborted) {
  run(processes(2), after_another, nccl_run(Domains::kOne, 50, "plain freed"));
  run(processes(2), after_another, nccl_run(Domains::kOne, 50, "plain aborted"));
}
TEST_F(GpuNcclSetup, AfterAnotherWasAborted) {
  run(processes(2), after_another, nccl_run(Domains::kApart, 50, "aborted"));
  run(processes(2), after_another, nccl_run(Domains::kOne, 50, "aborted"));
}

// NCCL's own variable makes every communicator of the process one whose calls return at once.
void not_blocking(Rank& rank) {
  const Comm comm = create_on_gpu(rank, nccl_options());
  ASSERT_TRUE(comm);
  for (const size_t count : {size_t{1}, size_t{100003}, size_t{4} << 20}) {
    expect_reduces(comm.get(), 1, count);
    if (testing::Test::HasFatalFailure()) return;
  }
}
TEST_F(GpuNcclSetup, WhereAVariableMakesNcclNonBlocking) {
  run(processes(2), not_blocking, nccl_run(Domains::kApart, 60, "", {"NCCL_COMM_BLOCKING=0"}));
}

// ---- Windows ------------------------------------------------------------------------------------

constexpr size_t kBytes = size_t{4} << 20;

Window alloc_nccl(symm_comm* comm, size_t bytes) {
  symm_window_options options = window_options();
  options.flags = SYMM_WINDOW_NCCL;
  symm_window* window = nullptr;
  EXPECT_TRUE(ok(symm_window_alloc(comm, bytes, &options, &window)));
  return Window(window);
}

symm_status register_nccl(symm_comm* comm, void* pointer, size_t bytes, Window* window) {
  symm_window_options options = window_options();
  options.flags = SYMM_WINDOW_NCCL;
  symm_window* raw = nullptr;
  const symm_status status = symm_window_register(comm, pointer, bytes, &options, &raw);
  window->reset(raw);
  return status;
}

// Whether NCCL has windows on this communicator; "" or why not.
std::string no_nccl_windows(const symm_comm* comm) {
  const Json report = report_of(comm);
  const Json& windows = report["communicator"]["nccl"]["windows"];
  EXPECT_EQ(Json::Kind::kBool, windows["available"].kind);
  if (windows["available"].boolean) return "";
  EXPECT_NE("", windows["reason"].string);
  return windows["reason"].string;
}

// What one rank writes every rank sees, at the window's end too.
void expect_seen(const Rank& rank, symm_comm* comm, const symm_window* window, std::byte* own,
                 size_t bytes) {
  const size_t count = bytes / sizeof(float);
  const GpuStream stream;
  write_gpu(own, values_of(rank.rank, 3, count).data(), count * sizeof(float));
  ASSERT_TRUE(ok(symm_comm_barrier(comm, stream)));
  stream.synchronize();
  for (int r = 0; r < rank.size; ++r) {
    ASSERT_TRUE(equal(values_of(r, 3, count), read_gpu(data(window, r), count * sizeof(float))))
        << "copy of rank " << r;
  }
  ASSERT_TRUE(ok(symm_comm_barrier(comm, stream)));
  stream.synchronize();
}

// On one stream in turn: symm's all-reduce into the window, NCCL's in place there, symm's from the
// window, and its plain one. Each takes what the last one left, so that none may begin early.
// `own` is where the caller sees its own copy.
void expect_mixes(const Rank& rank, symm_comm* comm, symm_window* window, std::byte* own,
                  size_t bytes) {
  const Nccl nccl(comm);
  ASSERT_TRUE(nccl.is_there());
  const GpuStream stream;
  Buffer input(bytes), output(bytes);
  for (const size_t count : {size_t{4}, size_t{2048}, size_t{65536}, bytes / sizeof(float)}) {
    if (count * sizeof(float) > bytes) continue;
    const size_t used = count * sizeof(float);
    const auto calls = [&] {
      ASSERT_TRUE(
          ok(symm_all_reduce(comm, input.data(), own, count, SYMM_FLOAT32, SYMM_SUM, stream)));
      ASSERT_EQ(0, nccl.all_reduce(own, own, count, stream));
      ASSERT_TRUE(ok(
          symm_window_all_reduce(window, 0, output.data(), count, SYMM_FLOAT32, SYMM_SUM, stream)));
      ASSERT_TRUE(ok(symm_all_reduce(comm, output.data(), output.data(), count, SYMM_FLOAT32,
                                     SYMM_SUM, stream)));
    };
    const float factor = static_cast<float>(rank.size * rank.size * rank.size);
    const auto check = [&](int turn) {
      stream.synchronize();
      ASSERT_TRUE(ok(symm_comm_check(comm, nullptr)));
      ASSERT_TRUE(equal(sum_of(rank.size, turn, count, factor), read_gpu(output.data(), used)))
          << count << " floats, turn " << turn;
      ASSERT_TRUE(
          equal(sum_of(rank.size, turn, count, static_cast<float>(rank.size)), read_gpu(own, used)))
          << count << " floats, turn " << turn << ", in the window";
    };
    for (int turn = 0; turn < 20; ++turn) {
      input.set(values_of(rank.rank, turn, count).data(), used);
      calls();
      if (testing::Test::HasFatalFailure()) return;
      check(turn);
      if (testing::Test::HasFatalFailure()) return;
    }
    // The same in a graph, where launches lie closer.
    const Graph graph(stream, calls);
    for (int turn = 20; turn < 60; ++turn) {
      input.set(values_of(rank.rank, turn, count).data(), used);
      graph.launch(stream);
      check(turn);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

// The window is the first call on the communicator. The argument is a variable that switches NCCL's
// windows off.
void window_first(Rank& rank) {
  const Comm comm = create_on_gpu(rank, nccl_options());
  ASSERT_TRUE(comm);
  const Window window = alloc_nccl(comm.get(), kBytes);
  ASSERT_TRUE(window);
  const std::string why_not = no_nccl_windows(comm.get());
  EXPECT_EQ(rank.argument.empty() ? "" : rank.argument + "=0 switches them off", why_not);
  auto* const own = data_as<std::byte>(window.get(), rank.rank);
  const auto zeroes = read_gpu(own, kBytes);
  for (const std::byte byte : zeroes) ASSERT_EQ(std::byte{0}, byte);
  expect_seen(rank, comm.get(), window.get(), own, kBytes);
  if (testing::Test::HasFatalFailure()) return;
  expect_mixes(rank, comm.get(), window.get(), own, kBytes);
}
TEST_F(GpuNcclWindows, AWindowMayBeTheFirstCall) {
  run(processes(2), window_first, nccl_run(Domains::kOne, 60));
}
TEST_F(GpuNcclWindows, AWindowMayBeTheFirstCallOfThreads) {
  NEEDS_LAUNCHES_OF(threads(2));
  run(threads(2), window_first, nccl_run(Domains::kOne, 60));
}
TEST_F(GpuNcclWindows, WithoutNcclsTheyAreSymmsOwnAndTheReportSaysWhy) {
  for (const std::string variable : {"NCCL_WIN_ENABLE", "NCCL_CUMEM_ENABLE"}) {
    run(processes(2), window_first, nccl_run(Domains::kOne, 55, variable, {variable + "=0"}));
  }
}

// Windows of many sizes, one after another and some at once, while NCCL works: giving one back ends
// beside the calls that follow.
void windows_come_and_go(Rank& rank) {
  const Comm comm = create_on_gpu(rank, nccl_options());
  ASSERT_TRUE(comm);
  const Nccl nccl(comm.get());
  ASSERT_TRUE(nccl.is_there());
  const GpuStream stream;
  constexpr size_t kCount = 5000;
  std::vector<Window> kept;
  for (int turn = 0; turn < 60; ++turn) {
    rank.at("turn " + std::to_string(turn));
    const size_t bytes = kCount * sizeof(float) + (static_cast<size_t>(turn % 4) << 20);
    kept.push_back(alloc_nccl(comm.get(), bytes));
    ASSERT_TRUE(kept.back());
    for (const Window& window : kept) {
      void* const own = data(window.get(), rank.rank);
      write_gpu(own, values_of(rank.rank, turn, kCount).data(), kCount * sizeof(float));
      ASSERT_EQ(0, nccl.all_reduce(own, own, kCount, stream));
      stream.synchronize();
      ASSERT_TRUE(equal(sum_of(rank.size, turn, kCount), read_gpu(own, kCount * sizeof(float))))
          << "turn " << turn;
    }
    if (turn % 3 != 2) kept.erase(kept.begin());
    if (kept.size() > 4) kept.clear();
  }
  EXPECT_EQ("", no_nccl_windows(comm.get()));
  ASSERT_TRUE(ok(symm_comm_check(comm.get(), nullptr)));
}
TEST_F(GpuNcclWindows, ComeAndGoWhileNcclWorks) {
  run(processes(2), windows_come_and_go, nccl_run(Domains::kOne, 90));
}

// The caller's memory, registered twice: NCCL has one window over it.
void registered(Rank& rank) {
  const Comm comm = create_on_gpu(rank, nccl_options());
  ASSERT_TRUE(comm);
  const Segments memory(gpu_of(rank), 1);
  Window first, second;
  ASSERT_TRUE(ok(register_nccl(comm.get(), memory.data(), memory.size(), &first)));
  EXPECT_EQ("", no_nccl_windows(comm.get()));
  ASSERT_TRUE(ok(register_nccl(comm.get(), memory.data(), memory.size(), &second)));
  for (const Window* window : {&first, &second}) {
    expect_seen(rank, comm.get(), window->get(), memory.data(), memory.size());
    if (testing::Test::HasFatalFailure()) return;
  }
  first.reset();
  expect_mixes(rank, comm.get(), second.get(), memory.data(), memory.size());
  if (testing::Test::HasFatalFailure()) return;

  // What NCCL would not take.
  const OwnAllocation plain(8192);
  Window none;
  EXPECT_TRUE(fails(SYMM_UNSUPPORTED, register_nccl(comm.get(), plain.data(), 8192, &none),
                    {"memory of cudaMalloc"}));
  const Segments other(gpu_of(rank), 1);
  EXPECT_TRUE(fails(SYMM_UNSUPPORTED, register_nccl(comm.get(), other.data() + 256, 8192, &none),
                    {"multiple of 4096"}));
  ASSERT_TRUE(ok(register_nccl(comm.get(), other.data() + 4096, 8192, &none)));
  expect_seen(rank, comm.get(), none.get(), other.data() + 4096, 8192);
  if (testing::Test::HasFatalFailure()) return;
  expect_has_nccl(comm.get());
  // Before their memory goes, on every rank.
  none.reset();
  second.reset();
  const GpuStream stream;
  ASSERT_TRUE(ok(symm_comm_barrier(comm.get(), stream)));
  stream.synchronize();
}
TEST_F(GpuNcclWindows, RegisteredMemoryMayBeNcclsToo) {
  run(processes(2), registered, nccl_run(Domains::kOne, 60));
}

// A range over several allocations is right, or it is refused.
void several_allocations(Rank& rank) {
  const Comm comm = create_on_gpu(rank, nccl_options());
  ASSERT_TRUE(comm);
  const Segments memory(gpu_of(rank), 2);
  Window window;
  const symm_status status = register_nccl(comm.get(), memory.data(), memory.size(), &window);
  if (status == SYMM_OK) {
    expect_mixes(rank, comm.get(), window.get(), memory.data(), memory.size());
  } else {
    EXPECT_TRUE(fails(SYMM_UNSUPPORTED, status, {"allocation"}));
  }
  if (testing::Test::HasFatalFailure()) return;
  expect_has_nccl(comm.get());
  window.reset();
  const GpuStream stream;
  ASSERT_TRUE(ok(symm_comm_barrier(comm.get(), stream)));
  stream.synchronize();
}
TEST_F(GpuNcclWindows, ARangeOfSeveralAllocationsIsRightOrRefused) {
  run(processes(2), several_allocations, nccl_run(Domains::kOne, 60));
}

// Of ranks that are not asked to have NCCL, or on calls that differ.
void refusals(Rank& rank) {
  const Comm plain = create_on_gpu(rank, gpu_options("plain", kSetUpMs, kWaitMs));
  ASSERT_TRUE(plain);
  symm_window_options options = window_options();
  options.flags = SYMM_WINDOW_NCCL;
  symm_window* none = nullptr;
  EXPECT_TRUE(fails(SYMM_UNSUPPORTED, symm_window_alloc(plain.get(), 4096, &options, &none),
                    {"SYMM_COMM_NCCL"}));
  const Comm comm = create_on_gpu(rank, nccl_options("with"));
  ASSERT_TRUE(comm);
  if (rank.rank == 1) options.flags = 0;
  EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT, symm_window_alloc(comm.get(), 4096, &options, &none),
                    {"SYMM_WINDOW_NCCL is set on rank 0 and not set on rank 1"}));
  expect_reduces(plain.get());
  expect_has_nccl(comm.get());
}
TEST_F(GpuNcclWindows, AreRefusedWithoutNcclAndWhereRanksDiffer) {
  run(processes(2), refusals, nccl_run(Domains::kOne));
}

}  // namespace
}  // namespace symm_test
