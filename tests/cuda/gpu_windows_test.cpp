// Windows on GPUs: every kind of memory, seen by every rank, given back whole.
#include <cstring>

#include "tests/cuda/gpu.h"
#include "tests/support/reference.h"

namespace symm_test {
namespace {

std::vector<float> numbers(int rank, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(rank * 1000 + static_cast<int>(i % 997));
  return values;
}

// Every copy is there, read by this rank's GPU, and a sum over the window is right.
void check_window(const Rank& rank, symm_comm* comm, symm_window* window, std::byte* own,
                  size_t count) {
  const auto mine = numbers(rank.rank, count);
  const GpuStream stream;
  ASSERT_TRUE(ok(symm_comm_barrier(comm, stream)));
  stream.synchronize();
  write_gpu(own, mine.data(), count * sizeof(float));
  ASSERT_TRUE(ok(symm_comm_barrier(comm, stream)));
  stream.synchronize();
  for (int r = 0; r < rank.size; ++r) {
    const auto theirs = numbers(r, count);
    const auto seen = read_gpu(data(window, r), count * sizeof(float));
    ASSERT_EQ(0, std::memcmp(seen.data(), theirs.data(), seen.size())) << "copy of rank " << r;
  }
  Buffer output(count * sizeof(float));
  ASSERT_TRUE(
      ok(symm_window_all_reduce(window, 0, output.data(), count, SYMM_FLOAT32, SYMM_SUM, stream)));
  stream.synchronize();
  ASSERT_TRUE(ok(symm_comm_check(comm, nullptr)));
  const auto sum = output.get();
  for (size_t i = 0; i < count; ++i) {
    float value;
    std::memcpy(&value, sum.data() + i * sizeof value, sizeof value);
    float expected = 0;
    for (int r = 0; r < rank.size; ++r)
      expected += static_cast<float>(r * 1000 + static_cast<int>(i % 997));
    ASSERT_EQ(expected, value) << i;
  }
}

void every_kind(Rank& rank) {
  // The window is the first thing that the communicator does.
  const Comm comm = create_on_gpu(rank);
  ASSERT_TRUE(comm);
  for (const size_t count : {size_t{1}, size_t{1000}, size_t{1} << 20}) {
    rank.at("alloc");
    const Window window = alloc(comm.get(), count * sizeof(float));
    ASSERT_TRUE(window);
    const auto zeroes = read_gpu(data(window.get(), rank.rank), count * sizeof(float));
    for (const std::byte byte : zeroes) ASSERT_EQ(std::byte{0}, byte);
    check_window(rank, comm.get(), window.get(), data_as<std::byte>(window.get(), rank.rank),
                 count);
  }
  {
    rank.at("register cudaMalloc memory, interior, another offset on each rank");
    const size_t count = 5000;
    const size_t offset = 64 + 32 * static_cast<size_t>(rank.rank);
    const OwnAllocation before(100);
    const OwnAllocation memory(offset + count * sizeof(float));
    symm_window* raw = nullptr;
    ASSERT_TRUE(ok(symm_window_register(comm.get(), memory.data() + offset, count * sizeof(float),
                                        nullptr, &raw)));
    Window window(raw);
    check_window(rank, comm.get(), window.get(), memory.data() + offset, count);
    const GpuStream stream;
    ASSERT_TRUE(ok(symm_comm_barrier(comm.get(), stream)));
    stream.synchronize();
    window.reset();
    ASSERT_TRUE(ok(symm_comm_barrier(comm.get(), stream)));
    stream.synchronize();
  }
  {
    rank.at("register segments");
    const Segments segments(gpu_of(rank), rank.rank == 0 ? 3 : 2);
    const size_t offset = rank.rank == 0 ? segments.granule() - 256 : 128;
    const size_t count = segments.granule() / sizeof(float) + 999;
    symm_window* raw = nullptr;
    ASSERT_TRUE(ok(symm_window_register(comm.get(), segments.data() + offset, count * sizeof(float),
                                        nullptr, &raw)));
    Window window(raw);
    check_window(rank, comm.get(), window.get(), segments.data() + offset, count);
  }
  {
    rank.at("refusals");
    float host = 0;
    symm_window* none = nullptr;
    EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT,
                      symm_window_register(comm.get(), &host, sizeof host, nullptr, &none),
                      {"is not memory of a GPU"}));
    const Segments hidden(gpu_of(rank), 1, false);
    EXPECT_TRUE(fails(SYMM_UNSUPPORTED,
                      symm_window_register(comm.get(), hidden.data(), 64, nullptr, &none),
                      {"without a file descriptor"}));
    EXPECT_TRUE(ok(symm_comm_check(comm.get(), nullptr)));
  }
}

void cycles(Rank& rank) {
  const Comm comm = create_on_gpu(rank);
  ASSERT_TRUE(comm);
  const GpuStream stream;
  const auto turn = [&](int i) {
    const size_t bytes = i % 50 == 0 ? (size_t{3} << 20) : 4 + 100 * static_cast<size_t>(i % 9);
    return alloc(comm.get(), bytes);
  };
  for (int i = 0; i < 100; ++i) turn(i);
  const size_t before = free_memory();
  for (int i = 0; i < 10000; ++i) {
    const Window window = turn(i);
    ASSERT_TRUE(window) << i;
  }
  ASSERT_TRUE(ok(symm_comm_barrier(comm.get(), stream)));
  stream.synchronize();
  // Another process's part of a GPU is seen too, hence the room.
  EXPECT_LT(before, free_memory() + (size_t{64} << 20));
}

void freed_memory(Rank& rank) {
  const Comm comm = create_on_gpu(rank);
  ASSERT_TRUE(comm);
  const GpuStream stream;
  Buffer output(4096);
  auto memory = std::make_unique<OwnAllocation>(4 << 20);
  symm_window* raw = nullptr;
  ASSERT_TRUE(ok(symm_window_register(comm.get(), memory->data(), 4096, nullptr, &raw)));
  const Window window(raw);
  memory.reset();
  EXPECT_TRUE(fails(
      SYMM_INVALID_ARGUMENT,
      symm_window_all_reduce(window.get(), 0, output.data(), 16, SYMM_FLOAT32, SYMM_SUM, stream),
      {"was freed after it was registered"}));
  EXPECT_TRUE(ok(symm_comm_check(comm.get(), nullptr)));
}

void capture_beside(Rank& rank) {
  const Comm comm = create_on_gpu(rank);
  ASSERT_TRUE(comm);
  const GpuStream stream;
  Buffer buffer(4096);
  buffer.fill(0);
  Window window, registered;
  Buffer memory(4096);
  Comm second;
  {
    // With creation, allocation and registration inside the capture.
    const auto mode = rank.argument == "processes" ? CU_STREAM_CAPTURE_MODE_GLOBAL
                                                   : CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    const Graph graph(
        stream,
        [&] {
          ASSERT_TRUE(ok(symm_all_reduce(comm.get(), buffer.data(), buffer.data(), 16, SYMM_FLOAT32,
                                         SYMM_SUM, stream)));
          window = alloc(comm.get(), 4096);
          ASSERT_TRUE(window);
          symm_window* raw = nullptr;
          ASSERT_TRUE(ok(symm_window_register(comm.get(), memory.data(), 4096, nullptr, &raw)));
          registered.reset(raw);
          second = create_on_gpu(rank, gpu_options("second"));
          ASSERT_TRUE(second);
          ASSERT_TRUE(ok(symm_window_all_reduce(window.get(), 0, buffer.data(), 16, SYMM_FLOAT32,
                                                SYMM_SUM, stream)));
        },
        mode);
    for (int i = 0; i < 20; ++i) graph.launch(stream);
    stream.synchronize();
  }
  EXPECT_TRUE(ok(symm_comm_check(comm.get(), nullptr)));
}

class GpuWindows : public testing::TestWithParam<Layout> {
 protected:
  void SetUp() override { NEEDS_GPUS(GetParam().processes); }
};
TEST_P(GpuWindows, EveryKindOfMemory) {
  NEEDS_LAUNCHES_OF(GetParam());
  run(GetParam(), every_kind, gpu_run(60));
}
TEST_P(GpuWindows, TenThousandCyclesLeaveNothingBehind) {
  NEEDS_LAUNCHES_OF(GetParam());
  run(GetParam(), cycles, gpu_run(110));
}
TEST_P(GpuWindows, FreedMemoryIsRefused) { run(GetParam(), freed_memory, gpu_run(30)); }
TEST_P(GpuWindows, ACaptureStaysValidBesideEverySetUpCall) {
  NEEDS_LAUNCHES_OF(GetParam());
  RunOptions options = gpu_run(30);
  options.argument = GetParam().processes > 1 ? "processes" : "threads";
  run(GetParam(), capture_beside, options);
}
INSTANTIATE_TEST_SUITE_P(Ranks, GpuWindows, testing::Values(threads(2), threads(5), processes(2)),
                         [](const testing::TestParamInfo<Layout>& info) {
                           return std::to_string(info.param.processes) + "x" +
                                  std::to_string(info.param.threads);
                         });

void all_on_one_gpu(Rank& rank) {
  symm_comm_options options = comm_options();
  symm_comm* comm = nullptr;
  EXPECT_TRUE(
      fails(SYMM_INVALID_ARGUMENT,
            symm_comm_create(rank.address.c_str(), rank.rank, rank.size, 0, &options, &comm),
            {"rank 0 -> GPU 0", "rank 1 -> GPU 0", "SYMM_COMM_SHARE_GPU"}));
}
TEST(GpuCreate, RanksThatShareAGpuUnaskedAreRefused) {
  NEEDS_GPUS(1);
  run(processes(2), all_on_one_gpu, gpu_run(30));
}

void own_visible_device(Rank& rank) {
  ASSERT_EQ(1, gpu_count());
  symm_comm_options options = comm_options();
  symm_comm* raw = nullptr;
  ASSERT_TRUE(ok(symm_comm_create(rank.address.c_str(), rank.rank, rank.size, SYMM_LOCAL_GPU,
                                  &options, &raw)));
  const Comm comm(raw);
  use_gpu(0);
  const Window window = alloc(comm.get(), 40000);
  ASSERT_TRUE(window);
  check_window(rank, comm.get(), window.get(), data_as<std::byte>(window.get(), rank.rank), 10000);
}
TEST(GpuCreate, EachRankSeesItsOwnGpuOnly) {
  NEEDS_GPUS(2);
  RunOptions options = gpu_run(30);
  options.environment = [](int process) {
    return std::vector<std::string>{"CUDA_VISIBLE_DEVICES=" + std::to_string(process)};
  };
  run(processes(2), own_visible_device, options);
}

}  // namespace
}  // namespace symm_test
