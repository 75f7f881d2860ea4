// All-reduces on GPUs against the reference, bit for bit: dtypes, operations, counts, alignments,
// in place and not, through windows, on ranks that are processes or threads, alone or sharing GPUs.
#include <cstring>

#include "tests/cuda/gpu.h"
#include "tests/support/reference.h"

namespace symm_test {
namespace {

constexpr size_t kCanary = 256;  // bytes before and behind an output

struct Case {
  symm_dtype dtype;
  symm_op op;
  size_t count;
  size_t input_shift = 0;  // elements
  size_t output_shift = 0;
  bool in_place = false;
  bool window = false;
  uint64_t seed = 0;
};

std::string text_of(const Case& c) {
  return "count " + std::to_string(c.count) + " " + name_of(c.dtype) + " " + name_of(c.op) +
         " shifts " + std::to_string(c.input_shift) + "/" + std::to_string(c.output_shift) +
         (c.in_place ? " in place" : "") + (c.window ? " window" : "");
}

// One call with everything around it checked. `window` is large enough.
void perform(const Rank& rank, symm_comm* comm, symm_window* window, const GpuStream& stream,
             const Case& c) {
  const size_t element = size_of(c.dtype);
  const size_t bytes = c.count * element;
  std::vector<std::vector<std::byte>> inputs;
  std::vector<const void*> pointers;
  for (int r = 0; r < rank.size; ++r) {
    inputs.emplace_back(bytes + 1);
    fill(inputs.back().data(), c.count, c.dtype, c.seed, r);
    pointers.push_back(inputs.back().data());
  }
  const auto& mine = inputs[static_cast<size_t>(rank.rank)];
  const size_t in_offset = c.window ? c.input_shift * element : kCanary + c.input_shift * element;
  Buffer own(bytes + 2 * kCanary + in_offset);
  own.fill(0xcd);
  std::byte* const base = c.window ? data_as<std::byte>(window, rank.rank) : own.data();
  std::byte* const input = base + in_offset;
  write_gpu(input, mine.data(), bytes);
  Buffer result(bytes + 2 * kCanary + c.output_shift * element);
  result.fill(0xab);
  std::byte* const output = c.in_place ? input : result.data() + kCanary + c.output_shift * element;
  if (c.window) {
    ASSERT_TRUE(
        ok(symm_window_all_reduce(window, in_offset, output, c.count, c.dtype, c.op, stream)))
        << text_of(c);
  } else {
    ASSERT_TRUE(ok(symm_all_reduce(comm, input, output, c.count, c.dtype, c.op, stream)))
        << text_of(c);
  }
  stream.synchronize();
  ASSERT_TRUE(ok(symm_comm_check(comm, nullptr))) << text_of(c);
  const auto got = read_gpu(output, bytes);
  const auto expected = reference(pointers, c.count, c.dtype, c.op);
  const size_t wrong = first_difference(got.data(), expected.data(), c.count, c.dtype);
  ASSERT_EQ(SIZE_MAX, wrong) << text_of(c) << ": rank " << rank.rank << " has "
                             << element_text(got.data(), wrong, c.dtype) << " instead of "
                             << element_text(expected.data(), wrong, c.dtype);
  rank.give(std::to_string(hash_bytes(got.data(), bytes)));
  if (c.in_place) return;
  const auto around = result.get();
  for (size_t i = 0; i < around.size(); ++i) {
    const size_t begin = kCanary + c.output_shift * element;
    if (i >= begin && i < begin + bytes) continue;
    ASSERT_EQ(std::byte{0xab}, around[i]) << text_of(c) << ": byte " << i << " beside the output";
  }
  ASSERT_EQ(0, std::memcmp(read_gpu(input, bytes).data(), mine.data(), bytes)) << text_of(c);
}

void expect_equal(const std::vector<std::vector<std::string>>& given) {
  for (size_t rank = 1; rank < given.size(); ++rank) EXPECT_EQ(given[0], given[rank]);
}

void every_type_and_operation(Rank& rank) {
  const Comm comm = create_on_gpu(rank);
  ASSERT_TRUE(comm);
  const Window window = alloc(comm.get(), 1 << 20);
  ASSERT_TRUE(window);
  const GpuStream stream;
  uint64_t seed = 1;
  for (const symm_dtype dtype : kAllDtypes) {
    for (const symm_op op : kAllOps) {
      for (const size_t count : {size_t{1}, size_t{77}, size_t{3001}, size_t{40000}}) {
        Case c{dtype, op, count};
        c.seed = ++seed;
        c.in_place = seed % 3 == 0;
        c.window = seed % 2 == 0;
        c.input_shift = c.window ? 0 : seed % 5;
        c.output_shift = seed % 7;
        perform(rank, comm.get(), window.get(), stream, c);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

void every_count_and_alignment(Rank& rank) {
  const Comm comm = create_on_gpu(rank);
  ASSERT_TRUE(comm);
  const Window window = alloc(comm.get(), size_t{48} << 20);
  ASSERT_TRUE(window);
  const GpuStream stream;
  uint64_t seed = 1;
  std::vector<size_t> counts;
  for (size_t count = 0; count <= 40; ++count) counts.push_back(count);
  for (size_t count = 64; count <= (size_t{1} << 20); count *= 4) {
    for (const size_t near : {count - 1, count, count + 1}) counts.push_back(near);
  }
  for (const size_t count : counts) {
    for (const symm_dtype dtype : {SYMM_BFLOAT16, SYMM_FLOAT32, SYMM_INT8}) {
      Case c{dtype, SYMM_SUM, count};
      c.seed = ++seed;
      c.window = seed % 2 == 0;
      c.in_place = seed % 3 == 0;
      c.input_shift = seed % 9;
      // Ranks need not be aligned alike.
      c.output_shift = static_cast<size_t>(rank.rank) + seed % 4;
      perform(rank, comm.get(), window.get(), stream, c);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

// Larger than a scratch bank of 32 MiB: in parts.
void large(Rank& rank) {
  const Comm comm = create_on_gpu(rank);
  ASSERT_TRUE(comm);
  const size_t count = (size_t{20} << 20) + 3;
  const Window window = alloc(comm.get(), count * 4 + 64);
  ASSERT_TRUE(window);
  const GpuStream stream;
  for (const bool in_window : {false, true}) {
    Case c{SYMM_FLOAT32, SYMM_SUM, count};
    c.window = in_window;
    c.seed = 5;
    perform(rank, comm.get(), window.get(), stream, c);
  }
}

class GpuAllReduce : public testing::TestWithParam<Layout> {
 protected:
  void SetUp() override {
    NEEDS_GPUS(1);
    NEEDS_LAUNCHES_OF(GetParam());
  }
};

TEST_P(GpuAllReduce, EveryTypeAndOperation) {
  expect_equal(run(GetParam(), every_type_and_operation, gpu_run(110)));
}
TEST_P(GpuAllReduce, EveryCountAndAlignment) {
  expect_equal(run(GetParam(), every_count_and_alignment, gpu_run(110)));
}

// Processes have a GPU of their own; threads share.
std::string name_of_layout(const testing::TestParamInfo<Layout>& info) {
  return std::to_string(info.param.processes) + "x" + std::to_string(info.param.threads);
}
INSTANTIATE_TEST_SUITE_P(Threads, GpuAllReduce,
                         testing::Values(threads(1), threads(2), threads(3), threads(4),
                                         threads(8)),
                         name_of_layout);

TEST(GpuAllReduceOfProcesses, EveryTypeAndOperation) {
  NEEDS_GPUS(2);
  expect_equal(run(processes(2), every_type_and_operation, gpu_run(110)));
}
TEST(GpuAllReduceOfProcesses, EveryCountAndAlignment) {
  NEEDS_GPUS(2);
  expect_equal(run(processes(2), every_count_and_alignment, gpu_run(110)));
}
TEST(GpuAllReduceOfProcesses, LargerThanTheScratch) {
  NEEDS_GPUS(2);
  expect_equal(run(processes(2), large, gpu_run(110)));
}

}  // namespace
}  // namespace symm_test
