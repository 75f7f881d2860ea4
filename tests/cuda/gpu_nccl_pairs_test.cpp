// Two simulated peer domains of two ranks each: calls that go by domain, with NCCL between the
// domains' first ranks, and the larger ones that NCCL does alone where every rank has a GPU.
#include <algorithm>

#include "tests/cuda/gpu_nccl.h"

namespace symm_test {
namespace {

constexpr size_t kByDomain = size_t{32} << 10;  // bytes of the largest call that goes by domain

// On two GPUs the pairs share one each, and each is a process of two threads.
const Layout kShared = mixed(2, 2);
const Layout kOwn = processes(4);

class GpuNcclPairs : public NeedsNccl, public testing::WithParamInterface<Layout> {
 protected:
  void SetUp() override {
    NeedsNccl::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    NEEDS_LAUNCHES_OF(GetParam());
    if (GetParam().threads == 1) NEEDS_GPUS(4);
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuNcclPairs, testing::Values(kShared, kOwn),
                         [](const testing::TestParamInfo<Layout>& info) {
                           return info.param.threads == 1 ? "OnTheirOwnGpus" : "SharingGpus";
                         });
RunOptions pairs_run(double seconds, Layout layout) {
  return nccl_run(Domains::kPairs, seconds, layout.threads == 1 ? "own" : "shared");
}

Comm create_in_pairs(const Rank& rank, const symm_comm_options& options) {
  use_gpu(rank.argument == "own" ? rank.rank : rank.rank / 2);
  { const Buffer first(1); }
  symm_comm* comm = nullptr;
  EXPECT_TRUE(ok(symm_comm_create(rank.address.c_str(), rank.rank, rank.size, SYMM_CURRENT_GPU,
                                  &options, &comm)));
  return Comm(comm);
}

float expected(int ranks, int turn, size_t i, symm_op op) {
  float result = value_of(0, turn, i);
  for (int rank = 1; rank < ranks; ++rank) {
    const float value = value_of(rank, turn, i);
    result = op == SYMM_MAX ? std::max(result, value) : result + value;
  }
  return op == SYMM_AVG ? result / static_cast<float>(ranks) : result;  // exact: four ranks
}

void sizes_and_operations(Rank& rank) {
  const Comm comm = create_in_pairs(rank, nccl_options());
  ASSERT_TRUE(comm);
  const GpuStream stream;
  constexpr size_t kMost = size_t{1} << 20;
  Buffer input(kMost * sizeof(float)), output(input.size());
  int turn = 0;
  for (const size_t count : {size_t{0}, size_t{1}, size_t{77}, kByDomain / sizeof(float),
                             kByDomain / sizeof(float) + 1, kMost}) {
    for (const symm_op op : {SYMM_SUM, SYMM_MAX, SYMM_AVG}) {
      const bool in_place = ++turn % 2 == 0;
      const std::string what = std::to_string(count) + " " + name_of(op);
      rank.at(what);
      char text[8192];
      size_t needed = 0;
      ASSERT_TRUE(
          ok(symm_plan(comm.get(), nullptr, count, SYMM_FLOAT32, op, text, sizeof text, &needed)));
      const bool by_domain = rank.argument == "shared" || count * sizeof(float) <= kByDomain;
      EXPECT_EQ(by_domain ? "hierarchical" : "nccl", parse_json(text)["algorithm"].string) << what;
      const std::vector<float> mine = values_of(rank.rank, turn, count);
      if (count > 0) input.set(mine.data(), count * sizeof(float));
      output.fill(0xab);
      const Buffer& result = in_place ? input : output;
      ASSERT_TRUE(ok(symm_all_reduce(comm.get(), input.data(), result.data(), count, SYMM_FLOAT32,
                                     op, stream)))
          << what;
      stream.synchronize();
      ASSERT_TRUE(ok(symm_comm_check(comm.get(), nullptr))) << what;
      std::vector<float> all(count);
      for (size_t i = 0; i < count; ++i) all[i] = expected(rank.size, turn, i, op);
      ASSERT_TRUE(equal(all, read_gpu(result.data(), count * sizeof(float)))) << what;
      if (in_place) continue;
      const auto behind = output.get();
      for (size_t i = count * sizeof(float); i < behind.size(); ++i) {
        ASSERT_EQ(std::byte{0xab}, behind[i]) << what << ": byte " << i << " behind the output";
      }
    }
  }
  // Integers of every size wrap, whatever the order.
  for (const symm_dtype dtype : {SYMM_INT8, SYMM_UINT32, SYMM_INT64}) {
    constexpr size_t kCount = 1001;
    const size_t bytes = kCount * size_of(dtype);
    std::vector<std::vector<std::byte>> inputs;
    std::vector<const void*> pointers;
    for (int r = 0; r < rank.size; ++r) {
      inputs.emplace_back(bytes);
      fill(inputs.back().data(), kCount, dtype, 7, r);
      pointers.push_back(inputs.back().data());
    }
    input.set(pointers[static_cast<size_t>(rank.rank)], bytes);
    ASSERT_TRUE(ok(
        symm_all_reduce(comm.get(), input.data(), output.data(), kCount, dtype, SYMM_SUM, stream)));
    stream.synchronize();
    EXPECT_TRUE(reference(pointers, kCount, dtype, SYMM_SUM) == read_gpu(output.data(), bytes))
        << name_of(dtype);
  }
}
TEST_P(GpuNcclPairs, ReduceBySizesAndOperations) {
  run(GetParam(), sizes_and_operations, pairs_run(100, GetParam()));
}

// Floats whose sums are rounded: the same bits on every rank, whatever they are.
void rounded(Rank& rank) {
  const Comm comm = create_in_pairs(rank, nccl_options());
  ASSERT_TRUE(comm);
  const GpuStream stream;
  Buffer buffer(size_t{1} << 20);
  for (const symm_dtype dtype : {SYMM_FLOAT32, SYMM_BFLOAT16, SYMM_FLOAT16}) {
    for (const size_t count : {size_t{1}, size_t{1003}, size_t{8192}, size_t{100003}}) {
      const size_t bytes = count * size_of(dtype);
      std::vector<std::byte> mine(bytes);
      fill(mine.data(), count, dtype, count, rank.rank);
      buffer.set(mine.data(), bytes);
      ASSERT_TRUE(ok(symm_all_reduce(comm.get(), buffer.data(), buffer.data(), count, dtype,
                                     SYMM_SUM, stream)));
      stream.synchronize();
      const auto got = read_gpu(buffer.data(), bytes);
      rank.give(name_of(dtype) + " x " + std::to_string(count) + " " +
                std::to_string(hash_bytes(got.data(), bytes)));
    }
  }
  ASSERT_TRUE(ok(symm_comm_check(comm.get(), nullptr)));
}
TEST_P(GpuNcclPairs, HaveTheSameBitsOnEveryRank) {
  const auto given = run(GetParam(), rounded, pairs_run(60, GetParam()));
  EXPECT_EQ(size_t{12}, given[0].size());
  for (size_t rank = 1; rank < given.size(); ++rank) EXPECT_EQ(given[0], given[rank]);
}

// Barriers too go by domain. The calls follow each other in one graph.
void graphs(Rank& rank) {
  const Comm comm = create_in_pairs(rank, nccl_options());
  ASSERT_TRUE(comm);
  constexpr size_t kCount = 4099;
  const GpuStream stream;
  Buffer input(kCount * sizeof(float)), once(input.size()), again(input.size());
  const auto reduce = [&](const Buffer& from, const Buffer& to) {
    ASSERT_TRUE(ok(symm_all_reduce(comm.get(), from.data(), to.data(), kCount, SYMM_FLOAT32,
                                   SYMM_SUM, stream)));
  };
  const Graph graph(stream, [&] {
    reduce(input, once);
    ASSERT_TRUE(ok(symm_comm_barrier(comm.get(), stream)));
    reduce(once, again);
  });
  for (int turn = 0; turn < 200; ++turn) {
    input.set(values_of(rank.rank, turn, kCount).data(), input.size());
    graph.launch(stream);
    if (turn % 4 == 0) reduce(input, once);
    stream.synchronize();
    ASSERT_TRUE(equal(sum_of(rank.size, turn, kCount), once.get())) << "turn " << turn;
    ASSERT_TRUE(equal(sum_of(rank.size, turn, kCount, 4), again.get())) << "turn " << turn;
  }
  ASSERT_TRUE(ok(symm_comm_check(comm.get(), nullptr)));
}
TEST_P(GpuNcclPairs, ReplaysHaveTheDataOfTheirTime) {
  run(GetParam(), graphs, pairs_run(100, GetParam()));
}

// Rank 3, which is first of no domain, does not come: every other wait ends by its abort, or by the
// deadline.
void the_last_never_comes(Rank& rank) {
  for (const bool aborts : {false, true}) {
    const std::string name = aborts ? "abort" : "timeout";
    rank.at(name);
    const Comm comm =
        create_in_pairs(rank, nccl_options(name.c_str(), kSetUpMs, aborts ? kWaitMs : 1000));
    ASSERT_TRUE(comm);
    const GpuStream stream;
    Buffer buffer(4096);
    buffer.fill(0);
    ASSERT_TRUE(ok(symm_comm_barrier(comm.get(), stream)));
    stream.synchronize();
    if (rank.rank < 3) {
      ASSERT_TRUE(ok(symm_all_reduce(comm.get(), buffer.data(), buffer.data(), 1000, SYMM_FLOAT32,
                                     SYMM_SUM, stream)));
    } else if (aborts) {
      sleep_ms(300);
      EXPECT_EQ(SYMM_OK, symm_comm_abort(comm.get()));
    }
    const int64_t start = now_ms();
    stream.synchronize();
    int32_t blamed = -1;
    EXPECT_EQ(aborts ? SYMM_ABORTED : SYMM_TIMEOUT, wait_for_error(comm.get(), &blamed))
        << symm_last_error();
    EXPECT_TRUE(!aborts || blamed == 3) << blamed << ": " << symm_last_error();
    EXPECT_LT(now_ms() - start, 10000);
    EXPECT_TRUE(gpu_works());
  }
  const Comm again = create_in_pairs(rank, nccl_options("again"));
  ASSERT_TRUE(again);
  expect_reduces(again.get());
}
TEST_P(GpuNcclPairs, EveryWaitEndsOnEveryRank) {
  run(GetParam(), the_last_never_comes, pairs_run(100, GetParam()));
}

}  // namespace
}  // namespace symm_test
