// The arithmetic of symm_op over packets, in rank order; bits as kernels/cpu/operations.h gives
// them.
#ifndef SYMM_KERNELS_CUDA_OPERATIONS_CUH_
#define SYMM_KERNELS_CUDA_OPERATIONS_CUH_

#include <cstdint>
#include <type_traits>

#include "capi/symm.h"
#include "kernels/cuda/numbers.cuh"

namespace symm::cuda {

// NaN if either is; -0 is less than +0.
__device__ __forceinline__ float greater(float a, float b) {
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
__device__ __forceinline__ float lesser(float a, float b) {
  float r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
// No instruction for it. Where a and b are equal the two choices are b and a, whose bits differ in
// the sign of zero only.
__device__ __forceinline__ double greater(double a, double b) {
  if (a != a || b != b) return __hiloint2double(-1, -1);
  const uint2 one = bits_of(a > b ? a : b);
  const uint2 other = bits_of(b > a ? b : a);
  return double_of({one.x & other.x, one.y & other.y});
}
__device__ __forceinline__ double lesser(double a, double b) {
  if (a != a || b != b) return __hiloint2double(-1, -1);
  const uint2 one = bits_of(a < b ? a : b);
  const uint2 other = bits_of(b < a ? b : a);
  return double_of({one.x | other.x, one.y | other.y});
}
template <class T>
__device__ __forceinline__ T greater(T a, T b) {
  return a > b ? a : b;
}
template <class T>
__device__ __forceinline__ T lesser(T a, T b) {
  return a < b ? a : b;
}

// Signed overflow would be undefined; unsigned arithmetic wraps.
template <class T>
__device__ __forceinline__ T sum(T a, T b) {
  if constexpr (std::is_same_v<T, float>) {
    return __fadd_rn(a, b);
  } else if constexpr (std::is_same_v<T, double>) {
    return __dadd_rn(a, b);
  } else {
    using Bits = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Bits>(a) + static_cast<Bits>(b));
  }
}
template <class T>
__device__ __forceinline__ T product(T a, T b) {
  if constexpr (std::is_same_v<T, float>) {
    return __fmul_rn(a, b);
  } else if constexpr (std::is_same_v<T, double>) {
    return __dmul_rn(a, b);
  } else {
    using Bits = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Bits>(a) * static_cast<Bits>(b));
  }
}

template <class Kind>
__device__ __forceinline__ typename Kind::Lane quotient(typename Kind::Lane a, int size) {
  using Lane = typename Kind::Lane;
  if constexpr (std::is_same_v<Lane, float>) {
    return __fdiv_rn(a, static_cast<float>(size));
  } else if constexpr (std::is_same_v<Lane, double>) {
    return __ddiv_rn(a, static_cast<double>(size));
  } else {
    return Kind::wrap(a) / static_cast<Lane>(size);
  }
}

// Reduces kUnits times 8 bytes of elements. kSum: the operation is SUM, known at compile time.
template <class Kind, bool kSum, int kUnits>
class Accumulator {
 public:
  __device__ __forceinline__ void start(const uint2 (&units)[kUnits]) {
#pragma unroll
    for (int u = 0; u < kUnits; ++u) Kind::decode(units[u], lanes_[u]);
  }

  __device__ __forceinline__ void add(const uint2 (&units)[kUnits], int op) {
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      Lane operand[Kind::kLanes];
      Kind::decode(units[u], operand);
      add_lanes(lanes_[u], operand, op);
    }
  }

  __device__ __forceinline__ void finish(uint2 (&units)[kUnits], int op, int size) {
    const bool extreme = !kSum && (op == SYMM_MAX || op == SYMM_MIN);
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      if constexpr (!kSum) {
        if (op == SYMM_AVG) {
#pragma unroll
          for (int i = 0; i < Kind::kLanes; ++i) lanes_[u][i] = quotient<Kind>(lanes_[u][i], size);
        }
      }
      units[u] = Kind::encode(lanes_[u], extreme);
    }
  }

 private:
  using Lane = typename Kind::Lane;
  using Lanes = Lane[Kind::kLanes];

  __device__ __forceinline__ static void add_lanes(Lanes& a, const Lanes& b, int op) {
    if constexpr (kSum) {
#pragma unroll
      for (int i = 0; i < Kind::kLanes; ++i) a[i] = sum(a[i], b[i]);
    } else {
      switch (op) {
        case SYMM_PROD:
#pragma unroll
          for (int i = 0; i < Kind::kLanes; ++i) a[i] = product(a[i], b[i]);
          break;
        case SYMM_MAX:
#pragma unroll
          for (int i = 0; i < Kind::kLanes; ++i) a[i] = greater(a[i], b[i]);
          break;
        case SYMM_MIN:
#pragma unroll
          for (int i = 0; i < Kind::kLanes; ++i) a[i] = lesser(a[i], b[i]);
          break;
        default:  // AVG, and SUM of types that have no kernel of their own for it
#pragma unroll
          for (int i = 0; i < Kind::kLanes; ++i) a[i] = sum(a[i], b[i]);
          break;
      }
    }
  }

  Lanes lanes_[kUnits];
};

// SUM of bytes, four in a word.
template <int kUnits>
class Accumulator<Numbers<SYMM_UINT8>, true, kUnits> {
 public:
  __device__ __forceinline__ void start(const uint2 (&units)[kUnits]) {
#pragma unroll
    for (int u = 0; u < kUnits; ++u) units_[u] = units[u];
  }
  __device__ __forceinline__ void add(const uint2 (&units)[kUnits], int) {
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      units_[u].x = __vadd4(units_[u].x, units[u].x);
      units_[u].y = __vadd4(units_[u].y, units[u].y);
    }
  }
  __device__ __forceinline__ void finish(uint2 (&units)[kUnits], int, int) {
#pragma unroll
    for (int u = 0; u < kUnits; ++u) units[u] = units_[u];
  }

 private:
  uint2 units_[kUnits];
};

}  // namespace symm::cuda

#endif  // SYMM_KERNELS_CUDA_OPERATIONS_CUH_
