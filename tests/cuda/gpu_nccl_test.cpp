// Ranks in different peer domains, simulated on one host: their all-reduces go through NCCL, eager
// and in graphs, and what NCCL cannot give is said or refused.
#include <algorithm>
#include <atomic>

#include "tests/cuda/driver.h"
#include "tests/cuda/gpu_nccl.h"

namespace symm_test {
namespace {

using symm::cuda::testing::check;
using symm::cuda::testing::driver;

constexpr size_t kCanary = 256;  // bytes before and behind an output

class GpuNccl : public NeedsNccl {};
class GpuNcclLayouts : public NeedsNccl, public testing::WithParamInterface<Layout> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuNcclLayouts, testing::Values(processes(2), threads(2)),
                         [](const testing::TestParamInfo<Layout>& info) {
                           return std::to_string(info.param.processes) + "x" +
                                  std::to_string(info.param.threads);
                         });

// ---- Results ------------------------------------------------------------------------------------

// 90 for 9.0: the least of the ranks' GPUs.
int least_capability(const Rank& rank) {
  int least = 0;
  for (int r = 0; r < rank.size; ++r) {
    CUdevice device = 0;
    int major = 0, minor = 0;
    check(driver()->device(&device, r % gpu_count()), "cuDeviceGet");
    check(driver()->attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device),
          "cuDeviceGetAttribute");
    check(driver()->attribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device),
          "cuDeviceGetAttribute");
    const int capability = major * 10 + minor;
    least = r == 0 ? capability : std::min(least, capability);
  }
  return least;
}

bool is_float8(symm_dtype dtype) { return dtype == SYMM_FLOAT8_E4M3 || dtype == SYMM_FLOAT8_E5M2; }

// A float of 8 or 16 bits as a place in the order of all of them; false for NaN.
bool place_of(const std::byte* elements, size_t i, symm_dtype dtype, int* place) {
  uint16_t bits = 0;
  std::memcpy(&bits, elements + i * size_of(dtype), size_of(dtype));
  const int sign = dtype == SYMM_BFLOAT16 ? 0x8000 : 0x80;
  const int infinity = dtype == SYMM_BFLOAT16 ? 0x7f80 : dtype == SYMM_FLOAT8_E5M2 ? 0x7c : 0x7e;
  const int magnitude = bits & (sign - 1);
  *place = (bits & sign) != 0 ? -magnitude : magnitude;
  return magnitude <= infinity;
}

// The first element that is neither the reference's nor, where NCCL rounds in its own way (a sum of
// float8 is one of float16 first), the number beside it.
size_t first_wrong(const std::vector<std::byte>& got, const std::vector<std::byte>& expected,
                   size_t count, symm_dtype dtype) {
  const size_t first = first_difference(got.data(), expected.data(), count, dtype);
  if (first == SIZE_MAX || (dtype != SYMM_BFLOAT16 && !is_float8(dtype))) return first;
  for (size_t i = first; i < count; ++i) {
    int a = 0, b = 0;
    const bool number = place_of(got.data(), i, dtype, &a);
    if (number != place_of(expected.data(), i, dtype, &b)) return i;
    if (number && std::abs(a - b) > 1) return i;
  }
  return SIZE_MAX;
}

// Repeats a tile; its length is a prime, so that no chunk of NCCL's looks like another.
constexpr size_t kTile = 262139;
std::vector<std::byte> repeated(const std::vector<std::byte>& tile, size_t bytes) {
  std::vector<std::byte> whole(bytes);
  for (size_t done = 0; done < bytes; done += tile.size()) {
    std::memcpy(whole.data() + done, tile.data(), std::min(tile.size(), bytes - done));
  }
  return whole;
}

void check_sum(const Rank& rank, symm_comm* comm, const GpuStream& stream, symm_dtype dtype,
               size_t count, uint64_t seed) {
  const std::string what = name_of(dtype) + " x " + std::to_string(count);
  rank.at(what);
  const size_t bytes = count * size_of(dtype);
  const size_t tile = std::min(count, kTile);
  std::vector<std::vector<std::byte>> tiles;
  std::vector<const void*> pointers;
  for (int r = 0; r < rank.size; ++r) {
    tiles.emplace_back(tile * size_of(dtype) + 1);
    fill(tiles.back().data(), tile, dtype, seed, r);
    tiles.back().resize(tile * size_of(dtype));
    pointers.push_back(tiles.back().data());
  }
  const auto mine = repeated(tiles[static_cast<size_t>(rank.rank)], bytes);
  const auto expected = repeated(reference(pointers, tile, dtype, SYMM_SUM), bytes);
  Buffer input(bytes + 2 * kCanary), result(bytes + 2 * kCanary);
  for (const bool in_place : {false, true}) {
    input.fill(0xcd);
    if (bytes > 0) input.set(mine.data(), bytes, kCanary);
    result.fill(0xab);
    Buffer& output = in_place ? input : result;
    ASSERT_TRUE(ok(symm_all_reduce(comm, input.data() + kCanary, output.data() + kCanary, count,
                                   dtype, SYMM_SUM, stream)))
        << what;
    stream.synchronize();
    ASSERT_TRUE(ok(symm_comm_check(comm, nullptr))) << what;
    const auto got = read_gpu(output.data() + kCanary, bytes);
    const size_t wrong = first_wrong(got, expected, count, dtype);
    ASSERT_EQ(SIZE_MAX, wrong) << what << (in_place ? " in place" : "") << ": rank " << rank.rank
                               << " has " << element_text(got.data(), wrong, dtype)
                               << " instead of " << element_text(expected.data(), wrong, dtype);
    rank.give(what + " " + std::to_string(hash_bytes(got.data(), bytes)));
    const auto around = output.get();
    const std::byte untouched{in_place ? uint8_t{0xcd} : uint8_t{0xab}};
    for (size_t i = 0; i < kCanary; ++i) {
      ASSERT_EQ(untouched, around[i]) << what << ": before the output";
      ASSERT_EQ(untouched, around[kCanary + bytes + i]) << what << ": behind the output";
    }
    if (in_place) continue;
    ASSERT_TRUE(mine == read_gpu(input.data() + kCanary, bytes)) << what << ": the input changed";
  }
}

void every_type_and_size(Rank& rank) {
  const Comm comm = create_on_gpu(rank, nccl_options());
  ASSERT_TRUE(comm);
  const GpuStream stream;
  const int capability = least_capability(rank);
  uint64_t seed = 1;
  for (const symm_dtype dtype :
       {SYMM_FLOAT32, SYMM_BFLOAT16, SYMM_INT32, SYMM_FLOAT8_E4M3, SYMM_FLOAT8_E5M2}) {
    if (is_float8(dtype) && capability < 90) {
      Buffer one(64);
      EXPECT_TRUE(
          fails(SYMM_UNSUPPORTED,
                symm_all_reduce(comm.get(), one.data(), one.data(), 1, dtype, SYMM_SUM, stream),
                {"compute capability"}));
      continue;
    }
    const size_t of_a_mib = (size_t{1} << 20) / size_of(dtype);
    for (const size_t count : {size_t{0}, size_t{1}, size_t{4099}, of_a_mib, 16 * of_a_mib}) {
      check_sum(rank, comm.get(), stream, dtype, count, ++seed);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST_P(GpuNcclLayouts, EveryTypeAndSizeHasTheSameBitsOnEveryRank) {
  NEEDS_LAUNCHES_OF(GetParam());
  const auto given = run(GetParam(), every_type_and_size, nccl_run(Domains::kApart, 110));
  EXPECT_GE(given[0].size(), size_t{3 * 5 * 2});
  EXPECT_EQ(given[0], given[1]);
}

// ---- What is said, and what is refused ----------------------------------------------------------

void what_is_said(Rank& rank) {
  const Comm comm = create_on_gpu(rank, nccl_options());
  ASSERT_TRUE(comm);
  const std::string why = "SYMM_DOMAIN_RANKS=1 keeps rank 0 and rank 1 apart";
  for (const size_t count : {size_t{1}, size_t{100} << 20}) {
    char text[8192];
    size_t needed = 0;
    ASSERT_TRUE(ok(
        symm_plan(comm.get(), nullptr, count, SYMM_FLOAT32, SYMM_SUM, text, sizeof text, &needed)));
    const Json plan = parse_json(text);
    EXPECT_EQ("nccl", plan["algorithm"].string);
    EXPECT_TRUE(
        mentions_all(plan["reason"].string, {"2 peer domains", "order of operands is NCCL's"}));
    ASSERT_EQ(1u, plan["faster"].items.size());
    EXPECT_EQ(why, plan["faster"].items[0]["why_not"].string);
  }
  const Json report = report_of(comm.get());
  const Json& inside = report["communicator"];
  EXPECT_EQ(2, inside["domains"].number);
  EXPECT_TRUE(inside["nccl"]["inside"].boolean);
  EXPECT_EQ(report["nccl"]["version"].string, inside["nccl"]["version"].string);
  EXPECT_NE("", inside["nccl"]["version"].string);
  EXPECT_FALSE(inside["nccl"]["windows"]["available"].boolean);
  ASSERT_EQ(2u, inside["peers"].items.size());
  const Json& peer = inside["peers"].items[static_cast<size_t>(1 - rank.rank)];
  EXPECT_EQ("nccl", peer["path"].string);
  EXPECT_EQ(why, peer["why_not_better"].string);
  ASSERT_EQ(1u, inside["algorithms"].items.size());
  EXPECT_EQ("nccl", inside["algorithms"].items[0]["algorithm"].string);

  // No windows; but each domain can have its own.
  symm_window* none = nullptr;
  Buffer memory(4096);
  EXPECT_TRUE(fails(SYMM_UNSUPPORTED, symm_window_alloc(comm.get(), 4096, nullptr, &none),
                    {why, "split the communicator by domain"}));
  EXPECT_TRUE(fails(SYMM_UNSUPPORTED,
                    symm_window_register(comm.get(), memory.data(), 4096, nullptr, &none),
                    {why, "split the communicator by domain"}));
  EXPECT_EQ(nullptr, none);
  expect_has_nccl(comm.get());
  if (testing::Test::HasFatalFailure()) return;
  const Comm domain = split(comm.get(), rank.rank, 0);
  ASSERT_TRUE(domain);
  const Window window = alloc(domain.get(), 4096);
  ASSERT_TRUE(window);
  EXPECT_NE(nullptr, data(window.get(), 0));
}
TEST_F(GpuNccl, PlanAndReportSayThatAndWhyItIsNccl) {
  run(processes(2), what_is_said, nccl_run(Domains::kApart));
}

void strict(Rank& rank) {
  symm_comm_options options = nccl_options("strict");
  options.flags |= SYMM_COMM_STRICT;
  Comm comm;
  EXPECT_TRUE(fails(SYMM_UNSUPPORTED, try_create(rank, options, &comm),
                    {"SYMM_COMM_STRICT", "order of operands is not 0..N-1", "rank 0 | rank 1"}));
  EXPECT_FALSE(comm);
  comm = create_on_gpu(rank, nccl_options("lenient"));
  ASSERT_TRUE(comm);
  expect_reduces(comm.get());
}
TEST_F(GpuNccl, StrictIsRefusedAcrossDomains) {
  run(processes(2), strict, nccl_run(Domains::kApart));
}

// The path of one rank, or of all, leads nowhere.
void not_there(Rank& rank) {
  constexpr char kNowhere[] = "/nonexistent/libnccl.so.2";
  symm_comm_options options = nccl_options("nowhere");
  if (rank.argument == "everywhere" || rank.rank == 1) options.nccl_path = kNowhere;
  Comm comm;
  EXPECT_TRUE(fails(SYMM_UNSUPPORTED, try_create(rank, options, &comm),
                    {"options.nccl_path cannot be loaded", kNowhere}));
  EXPECT_FALSE(comm);
  if (!apart()) {
    // Nothing there needs it.
    options.name = "without";
    options.flags &= ~static_cast<uint32_t>(SYMM_COMM_NCCL);
    ASSERT_TRUE(ok(try_create(rank, options, &comm)));
    expect_reduces(comm.get());
    void* inside = nullptr;
    EXPECT_TRUE(fails(SYMM_UNSUPPORTED, symm_comm_nccl(comm.get(), &inside), {"SYMM_COMM_NCCL"}));
  }
  comm = create_on_gpu(rank, nccl_options("there"));
  ASSERT_TRUE(comm);
  expect_has_nccl(comm.get());
}
TEST_F(GpuNccl, WithoutNcclDomainsAreNotJoinedAndEveryRankSaysWhy) {
  run(processes(2), not_there, nccl_run(Domains::kApart, 50, "everywhere"));
  run(processes(2), not_there, nccl_run(Domains::kApart, 50, "rank 1"));
}
TEST_F(GpuNccl, WithoutNcclOneDomainLacksOnlyNccl) {
  run(processes(2), not_there, nccl_run(Domains::kOne, 60, "everywhere"));
}

// ---- Order --------------------------------------------------------------------------------------

// Keeps a stream busy for a while, on the host so that no kernel is needed.
struct Pause {
  std::atomic<int64_t> over{0};
};
void CUDA_CB pause(void* data) {
  sleep_ms(200);
  static_cast<Pause*>(data)->over = now_ms();
}
void enqueue(Pause* what, const GpuStream& stream) {
  static const auto launch = reinterpret_cast<decltype(&cuLaunchHostFunc)>(
      dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuLaunchHostFunc"));
  ASSERT_NE(nullptr, launch);
  check(launch(stream.get(), pause, what), "cuLaunchHostFunc");
}

// In turn, one rank's stream comes late to the barrier.
constexpr int kBarriers = 6;
void barriers(Rank& rank) {
  const Comm comm = create_on_gpu(rank, nccl_options());
  ASSERT_TRUE(comm);
  const GpuStream stream;
  for (int turn = 0; turn < kBarriers; ++turn) {
    const bool late = turn % 2 == rank.rank;
    Pause before;
    if (late) enqueue(&before, stream);
    const symm_status status = symm_comm_barrier(comm.get(), stream);
    stream.synchronize();
    ASSERT_TRUE(ok(status));
    rank.give(std::to_string(late ? before.over.load() : now_ms()));
  }
  ASSERT_TRUE(ok(symm_comm_check(comm.get(), nullptr)));
}
TEST_F(GpuNccl, NothingPassesABarrierBeforeEveryRankIsThere) {
  const auto given = run(processes(2), barriers, nccl_run(Domains::kApart));
  ASSERT_EQ(size_t{kBarriers}, given[0].size());
  ASSERT_EQ(size_t{kBarriers}, given[1].size());
  for (size_t turn = 0; turn < kBarriers; ++turn) {
    EXPECT_LE(std::stoll(given[turn % 2][turn]), std::stoll(given[1 - turn % 2][turn]))
        << "turn " << turn;
  }
}

// Each call takes the last one's result, on another stream, and the ranks change streams otherwise
// than each other. Only the library orders them.
void two_streams(Rank& rank) {
  const Comm comm = create_on_gpu(rank, nccl_options());
  ASSERT_TRUE(comm);
  constexpr size_t kCount = 100003;
  constexpr int kCalls = 10;
  const GpuStream streams[2];
  Buffer first(kCount * sizeof(float)), second(kCount * sizeof(float));
  for (int turn = 0; turn < 40; ++turn) {
    first.set(values_of(rank.rank, turn, kCount).data(), first.size());
    for (int i = 0; i < kCalls; ++i) {
      const size_t stream = rank.rank == 0 ? static_cast<size_t>(i % 2)
                                           : mix(static_cast<uint64_t>(turn * kCalls + i)) % 2;
      const Buffer& from = i % 2 == 0 ? first : second;
      const Buffer& to = i % 2 == 0 ? second : first;
      ASSERT_TRUE(ok(symm_all_reduce(comm.get(), from.data(), to.data(), kCount, SYMM_FLOAT32,
                                     SYMM_SUM, streams[stream])));
    }
    for (const GpuStream& stream : streams) stream.synchronize();
    // Doubled by every call after the first.
    ASSERT_TRUE(equal(sum_of(rank.size, turn, kCount, 1 << (kCalls - 1)), first.get()))
        << "turn " << turn;
  }
  ASSERT_TRUE(ok(symm_comm_check(comm.get(), nullptr)));
}
TEST_F(GpuNccl, EagerCallsOnTwoStreamsFollowEachOther) {
  run(processes(2), two_streams, nccl_run(Domains::kApart));
}

// ---- Graphs -------------------------------------------------------------------------------------

void replays(Rank& rank) {
  const Comm comm = create_on_gpu(rank, nccl_options());
  ASSERT_TRUE(comm);
  constexpr size_t kCount = 30011;
  const GpuStream stream;
  Buffer input(kCount * sizeof(float)), once(input.size()), twice(input.size());
  const auto reduce = [&](const Buffer& from, const Buffer& to) {
    ASSERT_TRUE(ok(symm_all_reduce(comm.get(), from.data(), to.data(), kCount, SYMM_FLOAT32,
                                   SYMM_SUM, stream)));
  };
  const Graph graph(stream, [&] {
    reduce(input, once);
    ASSERT_TRUE(ok(symm_comm_barrier(comm.get(), stream)));
    reduce(once, twice);
  });
  for (int turn = 0; turn < 500; ++turn) {
    input.set(values_of(rank.rank, turn, kCount).data(), input.size());
    once.fill(0);
    graph.launch(stream);
    // Eager calls between replays, on their stream.
    if (turn % 5 == 0) reduce(input, once);
    stream.synchronize();
    ASSERT_TRUE(equal(sum_of(rank.size, turn, kCount), once.get())) << "turn " << turn;
    ASSERT_TRUE(equal(sum_of(rank.size, turn, kCount, 2), twice.get())) << "turn " << turn;
  }
  ASSERT_TRUE(ok(symm_comm_check(comm.get(), nullptr)));
}
TEST_P(GpuNcclLayouts, HundredsOfReplaysWithChangingData) {
  NEEDS_LAUNCHES_OF(GetParam());
  run(GetParam(), replays, nccl_run(Domains::kApart, 90));
}

// Nothing was called on the communicator before, and nothing may be set up inside a capture. In the
// mode that forbids most, which is PyTorch's.
void first_in_a_capture(Rank& rank) {
  use_gpu(gpu_of(rank));
  const GpuStream stream;
  for (const size_t count : {size_t{1}, size_t{100003}, size_t{16} << 20}) {
    const std::string name = "first " + std::to_string(count);
    rank.at(name);
    const Comm comm = create_on_gpu(rank, nccl_options(name.c_str()));
    ASSERT_TRUE(comm);
    Buffer input(count * sizeof(float)), output(input.size());
    const Graph graph(
        stream,
        [&] {
          ASSERT_TRUE(ok(symm_all_reduce(comm.get(), input.data(), output.data(), count,
                                         SYMM_FLOAT32, SYMM_SUM, stream)));
        },
        CU_STREAM_CAPTURE_MODE_GLOBAL);
    for (int turn = 0; turn < 5; ++turn) {
      input.set(values_of(rank.rank, turn, count).data(), input.size());
      output.fill(0);
      for (int i = 0; i <= turn; ++i) graph.launch(stream);
      stream.synchronize();
      ASSERT_TRUE(equal(sum_of(rank.size, turn, count), output.get())) << name << ", turn " << turn;
    }
    ASSERT_TRUE(ok(symm_comm_check(comm.get(), nullptr)));
    expect_reduces(comm.get());
  }
}
TEST_F(GpuNccl, TheFirstCallMayBeCapturedWhateverItsSize) {
  run(processes(2), first_in_a_capture, nccl_run(Domains::kApart, 110));
}

// The graph keeps NCCL's communicator, whose handle is gone.
void replays_after_free(Rank& rank) {
  Comm comm = create_on_gpu(rank, nccl_options());
  ASSERT_TRUE(comm);
  constexpr size_t kCount = 3001;
  const GpuStream stream;
  Buffer input(kCount * sizeof(float)), output(input.size());
  {
    const Graph graph(stream, [&] {
      ASSERT_TRUE(ok(symm_all_reduce(comm.get(), input.data(), output.data(), kCount, SYMM_FLOAT32,
                                     SYMM_SUM, stream)));
    });
    comm.reset();
    for (int turn = 0; turn < 100; ++turn) {
      input.set(values_of(rank.rank, turn, kCount).data(), input.size());
      graph.launch(stream);
      stream.synchronize();
      ASSERT_TRUE(equal(sum_of(rank.size, turn, kCount), output.get())) << "turn " << turn;
    }
  }
  const Comm again = create_on_gpu(rank, nccl_options("again"));
  ASSERT_TRUE(again);
  expect_reduces(again.get());
}
TEST_F(GpuNccl, AGraphOutlivesTheHandle) {
  run(processes(2), replays_after_free, nccl_run(Domains::kApart));
}

}  // namespace
}  // namespace symm_test
