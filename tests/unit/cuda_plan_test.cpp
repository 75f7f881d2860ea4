// Which kernels an all-reduce on GPUs takes, and that their grids and slots always fit.
#include "core/cuda/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "core/types.h"

namespace symm::cuda {
namespace {

constexpr uint64_t kKi = 1024;
constexpr uint64_t kMi = 1024 * 1024;

Agreed agreed_of(int size, int ranks_on_a_gpu = 1, bool sole = false) {
  Agreed agreed;
  agreed.size = size;
  agreed.most_ranks_on_a_gpu = ranks_on_a_gpu;
  agreed.multiprocessors = 132;
  agreed.dependent_launch = true;
  agreed.sole = sole;
  agreed.scratch_bytes = 128 * kMi;
  return agreed;
}

Call call_of(uint64_t count, symm_dtype dtype = SYMM_BFLOAT16, symm_op op = SYMM_SUM) {
  Call call;
  call.form = Form::kAllReduce;
  call.dtype = dtype;
  call.op = op;
  call.count = count;
  return call;
}

Algorithm algorithm_of(const Agreed& agreed, uint64_t bytes) {
  return plan(agreed, call_of(bytes / 2)).algorithm;
}

std::string grid_of(const Agreed& agreed, uint64_t bytes) {
  const Call call = call_of(bytes / 2);
  const Plan p = plan(agreed, call);
  const Launch l = launch(agreed, p, call, p.part_count);
  return std::to_string(l.blocks) + "x" + std::to_string(l.threads) +
         ((l.flags & kEightLanes) != 0 ? " eight lanes" : "");
}

// Blocks of the grids of ranks on one GPU, as a call of `bytes` launches them.
uint64_t blocks_of(const Agreed& agreed, uint64_t bytes) {
  const Call call = call_of(bytes / 2);
  const Plan p = plan(agreed, call);
  return launch(agreed, p, call, p.part_count).blocks;
}

// Where one block of NCCL's takes a multiprocessor, and 64 blocks are the most it has.
TEST(CudaPlan, NcclFindsRoomBesideRanksThatShareGpus) {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    Agreed agreed = agreed_of(std::max(ranks, 2), ranks);
    agreed.beside_nccl = true;
    // Those of the domain, and as many of another one or of another communicator. The next kernel
    // of a stream waits on the GPU already.
    const auto at_once = static_cast<uint64_t>(ranks) * 2 * 2;
    for (uint64_t bytes = 2; bytes <= 64 * kMi; bytes *= 2) {
      EXPECT_LE(at_once * blocks_of(agreed, bytes), 132u - 64u)
          << bytes << " B, " << ranks << " ranks of the domain on the GPU";
    }
  }
}

TEST(CudaPlan, TwoRanksTakeWhatMeasuredBest) {
  const Agreed agreed = agreed_of(2, 1, true);
  EXPECT_EQ(algorithm_of(agreed, 0), Algorithm::kLowLatency);
  EXPECT_EQ(algorithm_of(agreed, 256), Algorithm::kLowLatency);
  EXPECT_EQ(algorithm_of(agreed, kKi), Algorithm::kPacked);
  EXPECT_EQ(algorithm_of(agreed, 8 * kKi), Algorithm::kPacked);
  EXPECT_EQ(algorithm_of(agreed, 16 * kKi), Algorithm::kPacked);
  EXPECT_EQ(algorithm_of(agreed, 256 * kMi), Algorithm::kPacked);
  EXPECT_EQ(grid_of(agreed, 256), "1x32");
  EXPECT_EQ(grid_of(agreed, kKi), "1x64");
  EXPECT_EQ(grid_of(agreed, 8 * kKi), "16x128 eight lanes");
  EXPECT_EQ(grid_of(agreed, 4 * kKi), "1x256");
  EXPECT_EQ(grid_of(agreed, 16 * kKi), "64x64 eight lanes");
  EXPECT_EQ(grid_of(agreed, 64 * kKi), "128x128 eight lanes");
  EXPECT_EQ(grid_of(agreed, 128 * kKi), "256x128 eight lanes");
  EXPECT_EQ(grid_of(agreed, 256 * kKi), "128x128");
  EXPECT_EQ(grid_of(agreed, 2 * kMi), "512x256");
  EXPECT_EQ(grid_of(agreed, 16 * kMi), "8192x128");
}

TEST(CudaPlan, MoreThanTwoRanksOwnSharesOfLargeMessages) {
  for (const int size : {3, 4, 8, 32}) {
    EXPECT_EQ(algorithm_of(agreed_of(size), kKi), Algorithm::kLowLatency);
    EXPECT_EQ(algorithm_of(agreed_of(size), 64 * kKi), Algorithm::kPacked);
    EXPECT_EQ(algorithm_of(agreed_of(size), 16 * kMi), Algorithm::kTwoShot);
  }
}

TEST(CudaPlan, AGridIsBoundedUnlessTheCommunicatorIsAlone) {
  EXPECT_EQ(algorithm_of(agreed_of(2), kMi), Algorithm::kPacked);
  EXPECT_EQ(algorithm_of(agreed_of(2), 4 * kMi), Algorithm::kPackedRounds);
  EXPECT_EQ(algorithm_of(agreed_of(2, 1, true), 4 * kMi), Algorithm::kPacked);
  EXPECT_EQ(algorithm_of(agreed_of(2, 2, true), 4 * kMi), Algorithm::kPackedRounds);
  const Plan p = plan(agreed_of(2), call_of(8 * kMi));
  EXPECT_EQ(p.faster, Algorithm::kPacked);
  EXPECT_STRNE(p.why_not, "");
}

TEST(CudaPlan, OneRankCopiesAndOtherCallsAreBarriers) {
  EXPECT_EQ(algorithm_of(agreed_of(1), kKi), Algorithm::kCopy);
  EXPECT_EQ(plan(agreed_of(4), Call{}).algorithm, Algorithm::kBarrier);
}

// Registers that the kernels' launch bounds allow.
uint64_t registers_of(int size) { return size == 2 ? 32 : 64; }

TEST(CudaPlan, GridsThatMayWaitForEachOtherFitTheGpuTogether) {
  for (const int size : {2, 3, 4, 8, 16, 32}) {
    for (const int ranks : {1, 2, 8, 32}) {
      for (const bool sole : {false, true}) {
        if (ranks > size || (sole && ranks == 1)) continue;
        const Agreed agreed = agreed_of(size, ranks, sole);
        for (uint64_t bytes = 2; bytes < 512 * kMi; bytes = bytes * 3 + 2) {
          const Call call = call_of(bytes / 2);
          const Plan p = plan(agreed, call);
          const Launch l = launch(agreed, p, call, p.part_count);
          // The ranks, twice for those that wait behind them, twice for a second communicator.
          const uint64_t threads =
              uint64_t{l.blocks} * l.threads * static_cast<uint64_t>(ranks) * 2 * (sole ? 1 : 2);
          EXPECT_LE(threads, uint64_t{132} * 2048) << size << " " << ranks << " " << bytes;
          EXPECT_LE(threads * registers_of(size), uint64_t{132} * 65536)
              << size << " " << ranks << " " << bytes;
        }
      }
    }
  }
}

TEST(CudaPlan, PartsCoverTheMessageAndFitTheirSlots) {
  for (const int size : {2, 3, 4, 8, 31}) {
    for (const uint64_t scratch : {least_scratch(size), 300 * kKi, 8 * kMi, 128 * kMi}) {
      Agreed agreed = agreed_of(size);
      agreed.scratch_bytes = std::max(scratch, least_scratch(size));
      const Layout layout = layout_of(agreed);
      for (const symm_dtype dtype : {SYMM_UINT8, SYMM_BFLOAT16, SYMM_FLOAT64}) {
        const uint64_t element = dtype_size(dtype);
        for (uint64_t count = 1; count < 400 * kMi / element; count = count * 5 / 2 + 3) {
          SCOPED_TRACE(::testing::Message() << size << " ranks, scratch " << agreed.scratch_bytes
                                            << ", " << count << " of " << element);
          const Call call = call_of(count, dtype);
          const Plan p = plan(agreed, call);
          ASSERT_GE(p.part_count * p.parts, count);
          ASSERT_LT(p.part_count * (p.parts - 1), count);
          const uint64_t part = std::min(p.part_count, count) * element;
          if (p.parts > 1) {
            ASSERT_EQ(part % 16, 0u);
          }
          const uint64_t packets = (part + 15) / 16;
          switch (p.algorithm) {
            case Algorithm::kLowLatency:
              ASSERT_EQ(p.parts, 1u);
              ASSERT_LE((part + 7) / 8 * 16, layout.low_latency_part);
              break;
            case Algorithm::kTwoShot: {
              const auto ranks = static_cast<uint64_t>(size);
              ASSERT_LE((packets + ranks - 1) / ranks * 16, layout.packed_part / 2);
              break;
            }
            default:
              ASSERT_LE(packets * 16, layout.packed_part);
              break;
          }
        }
      }
    }
  }
}

TEST(CudaPlan, AreasNeitherOverlapNorExceedTheScratch) {
  for (int size = 1; size <= kMostRanks; ++size) {
    for (const uint64_t scratch : {least_scratch(size), 100 * kKi, kMi, 128 * kMi, 100000 * kMi}) {
      Agreed agreed = agreed_of(size);
      agreed.scratch_bytes = std::max(scratch, least_scratch(size));
      const Layout layout = layout_of(agreed);
      const auto parts = static_cast<uint64_t>(2 * (size - 1));
      EXPECT_GE(layout.low_latency, sizeof(Control));
      EXPECT_GE(layout.packed, layout.low_latency + parts / 2 * layout.low_latency_part);
      EXPECT_EQ(layout.packed_bytes, parts * layout.packed_part);
      EXPECT_GE(layout.escape, layout.packed + layout.packed_bytes);
      const uint64_t second = layout.low_latency + layout.low_latency_bank;
      EXPECT_EQ(second % 16, 0u);
      EXPECT_TRUE(size == 1 || second >= layout.escape + parts * layout.packed_part);
      EXPECT_GE(layout.bytes, second + parts / 2 * layout.low_latency_part);
      EXPECT_LE(layout.bytes, agreed.scratch_bytes);
      EXPECT_EQ(layout.packed % 16, 0u);
      EXPECT_EQ(layout.escape % 16, 0u);
      EXPECT_EQ(layout.packed_part % 32, 0u);
      if (size > 1) {
        EXPECT_GT(layout.packed_part, 0u);
        EXPECT_GT(layout.low_latency_part, 0u);
      }
    }
  }
}

TEST(CudaPlan, EveryCallHasAKernelThatItsRanksLoad) {
  const Kernels all = kernels();
  if (all.count == 0) GTEST_SKIP() << "built without a CUDA compiler";
  std::set<std::string> names;
  for (int i = 0; i < all.count; ++i) names.insert(all.kernels[i].name);
  EXPECT_EQ(names.size(), static_cast<size_t>(all.count));
  for (int size = 1; size <= kMostRanks; ++size) {
    const Agreed agreed = agreed_of(size);
    for (int dtype = 0; dtype < kDtypeCount; ++dtype) {
      for (int op = 0; op < kOpCount; ++op) {
        const Call call = call_of(100, static_cast<symm_dtype>(dtype), static_cast<symm_op>(op));
        Plan p = plan(agreed, call);
        for (const Algorithm algorithm :
             {Algorithm::kBarrier, Algorithm::kLowLatency, Algorithm::kPacked,
              Algorithm::kPackedRounds, Algorithm::kTwoShot, Algorithm::kCopy}) {
          if (algorithm == Algorithm::kTwoShot && size == 2) continue;
          p.algorithm = algorithm;
          const Launch l = launch(agreed, p, call, 100);
          ASSERT_GE(l.kernel, 0);
          ASSERT_LT(l.kernel, all.count);
          const Kernel& kernel = all.kernels[l.kernel];
          const std::string name = kernel.name;
          EXPECT_NE(name.find(algorithm_name(algorithm)), std::string::npos) << name;
          EXPECT_TRUE(size == 1 || needed(kernel, size)) << name << " for " << size;
          if (algorithm == Algorithm::kBarrier || algorithm == Algorithm::kCopy) continue;
          EXPECT_EQ(name.find("_sum_") != std::string::npos, op == SYMM_SUM) << name;
          EXPECT_TRUE(kernel.world == 0 || kernel.world == size) << name;
          // Sums of signed integers are those of unsigned ones.
          std::string type = dtype_name(static_cast<symm_dtype>(dtype));
          if (op == SYMM_SUM && type.rfind("int", 0) == 0) type = "u" + type;
          EXPECT_NE(name.find("_" + type + "_"), std::string::npos) << name << " for " << type;
        }
      }
    }
  }
}

TEST(CudaPlan, RecordsTellCallsApartAndBack) {
  std::set<uint32_t> hashes;
  int records = 0;
  for (const symm_dtype dtype : {SYMM_INT8, SYMM_FLOAT32}) {
    for (const symm_op op : {SYMM_SUM, SYMM_AVG}) {
      for (const uint64_t count : {0, 1, 2, 1 << 20}) {
        for (const uint64_t window : {0, 1, 7}) {
          for (const uint64_t offset : {0, 16, 256}) {
            Call call = call_of(count, dtype, op);
            call.form = window == 0 ? Form::kAllReduce : Form::kWindowAllReduce;
            call.window = window;
            call.offset = offset;
            for (const Algorithm algorithm : {Algorithm::kLowLatency, Algorithm::kPacked}) {
              const CallRecord record = record_of(call, algorithm);
              EXPECT_EQ(symm::cuda::call_of(record), call);
              hashes.insert(hash_of(record));
              ++records;
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(hashes.size(), static_cast<size_t>(records));
  EXPECT_EQ(symm::cuda::call_of(record_of(Call{}, Algorithm::kBarrier)), Call{});
}

}  // namespace
}  // namespace symm::cuda
