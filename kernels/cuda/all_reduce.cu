// The all-reduce's kernels for one world and one family of dtypes: the build compiles this file
// once for each, with SYMM_WORLD (2, 4, 8; 0 is any number) and SYMM_FAMILY defined, so that they
// build side by side. core/cuda/plan.cpp has the same names in the same places.
//
// SUM has a kernel of its own for each dtype (integers of a size share one: they wrap to the same
// bits). The other operations share a kernel a dtype, for two ranks and for any number.
#include "kernels/cuda/low_latency.cuh"
#include "kernels/cuda/packed.cuh"
#include "kernels/cuda/rounds.cuh"
#include "kernels/cuda/two_shot.cuh"

namespace symm::cuda {

// Of a block. With the blocks that must fit a multiprocessor it bounds the registers of a thread,
// which the plan counts on: 65536 / kThreads / blocks.
constexpr int kThreads = 256;
constexpr int kWholeGridBlocks = SYMM_WORLD == 2 ? 8 : 4;
constexpr int kRoundsBlocks = SYMM_WORLD == 2 ? 8 : 4;

// Macros, because the host finds kernels by name and templates have no plain ones.
#define SYMM_JOIN(a, b, c, d) a##_##b##_##c##_##d
#define SYMM_NAME(a, b, c, d) SYMM_JOIN(a, b, c, d)
#define SYMM_KERNEL(algorithm, blocks, name, dtype, op, is_sum)                             \
  extern "C" __global__ void __launch_bounds__(kThreads, blocks)                            \
      SYMM_NAME(symm_##algorithm, name, op, SYMM_WORLD)(const __grid_constant__ Params p) { \
    algorithm<Numbers<dtype>, is_sum, SYMM_WORLD>(p);                                       \
  }

#if SYMM_WORLD == 2
#define SYMM_TWO_SHOT(name, dtype, op, is_sum)
#else
#define SYMM_TWO_SHOT(name, dtype, op, is_sum) \
  SYMM_KERNEL(two_shot, kRoundsBlocks, name, dtype, op, is_sum)
#endif

#define SYMM_KERNELS(name, dtype, op, is_sum)                         \
  SYMM_KERNEL(low_latency, kWholeGridBlocks, name, dtype, op, is_sum) \
  SYMM_KERNEL(packed, kWholeGridBlocks, name, dtype, op, is_sum)      \
  SYMM_KERNEL(packed_rounds, kRoundsBlocks, name, dtype, op, is_sum)  \
  SYMM_TWO_SHOT(name, dtype, op, is_sum)

#define SYMM_SUM_KERNELS(name, dtype) SYMM_KERNELS(name, dtype, sum, true)
#if SYMM_WORLD == 2 || SYMM_WORLD == 0
#define SYMM_OTHER_KERNELS(name, dtype) SYMM_KERNELS(name, dtype, other, false)
#else
#define SYMM_OTHER_KERNELS(name, dtype)
#endif

#if SYMM_FAMILY == 0
SYMM_SUM_KERNELS(float32, SYMM_FLOAT32)
SYMM_SUM_KERNELS(float64, SYMM_FLOAT64)
SYMM_OTHER_KERNELS(float32, SYMM_FLOAT32)
SYMM_OTHER_KERNELS(float64, SYMM_FLOAT64)
#elif SYMM_FAMILY == 1
SYMM_SUM_KERNELS(float16, SYMM_FLOAT16)
SYMM_SUM_KERNELS(bfloat16, SYMM_BFLOAT16)
SYMM_OTHER_KERNELS(float16, SYMM_FLOAT16)
SYMM_OTHER_KERNELS(bfloat16, SYMM_BFLOAT16)
#elif SYMM_FAMILY == 2
SYMM_SUM_KERNELS(float8_e4m3, SYMM_FLOAT8_E4M3)
SYMM_SUM_KERNELS(float8_e5m2, SYMM_FLOAT8_E5M2)
SYMM_OTHER_KERNELS(float8_e4m3, SYMM_FLOAT8_E4M3)
SYMM_OTHER_KERNELS(float8_e5m2, SYMM_FLOAT8_E5M2)
#elif SYMM_FAMILY == 3
SYMM_SUM_KERNELS(uint8, SYMM_UINT8)
SYMM_SUM_KERNELS(uint32, SYMM_UINT32)
SYMM_SUM_KERNELS(uint64, SYMM_UINT64)
#elif SYMM_FAMILY == 4
SYMM_OTHER_KERNELS(int8, SYMM_INT8)
SYMM_OTHER_KERNELS(uint8, SYMM_UINT8)
SYMM_OTHER_KERNELS(int32, SYMM_INT32)
SYMM_OTHER_KERNELS(uint32, SYMM_UINT32)
SYMM_OTHER_KERNELS(int64, SYMM_INT64)
SYMM_OTHER_KERNELS(uint64, SYMM_UINT64)
#else
#error "SYMM_FAMILY is 0 to 4"
#endif

}  // namespace symm::cuda
