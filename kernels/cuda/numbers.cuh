// How elements become accumulators and come back: one struct a kind of element. The bits are those
// of kernels/cpu/formats.h: rounded to nearest even, float8 saturated, a NaN all ones.
//
// A kind has
//   Lane, kLanes                    what 8 bytes of elements become
//   kElement                        bytes of an element
//   kSteers                         whether the poison is a NaN here, so that a NaN may stand for
//   it decode(unit, lanes)             8 bytes encode(lanes, extreme) -> unit  `extreme`: the lanes
//   are operands, so nothing may saturate
#ifndef SYMM_KERNELS_CUDA_NUMBERS_CUH_
#define SYMM_KERNELS_CUDA_NUMBERS_CUH_

#include <cstdint>

#include "capi/symm.h"

namespace symm::cuda {

// A value as other bits.
__device__ __forceinline__ double double_of(uint2 u) {
  return __hiloint2double(static_cast<int>(u.y), static_cast<int>(u.x));
}
__device__ __forceinline__ uint2 bits_of(double d) {
  return {static_cast<uint32_t>(__double2loint(d)), static_cast<uint32_t>(__double2hiint(d))};
}
__device__ __forceinline__ uint64_t whole_of(uint2 u) {
  return u.x | static_cast<uint64_t>(u.y) << 32;
}
__device__ __forceinline__ uint2 halves_of(uint64_t v) {
  return {static_cast<uint32_t>(v), static_cast<uint32_t>(v >> 32)};
}

// CUDA's conversions give NaNs with a clear sign and a magnitude of all ones, which is no number's:
// adding one to the magnitude then sets the sign's bit, and no other number's magnitude does.
template <uint32_t kMagnitudes>
__device__ __forceinline__ uint32_t canonical_nans(uint32_t elements) {
  constexpr uint32_t kSigns = ~kMagnitudes;
  constexpr uint32_t kOnes = kSigns == 0x80008000u ? 0x00010001u : 0x01010101u;
  return elements | (((elements & kMagnitudes) + kOnes) & kSigns);
}

template <int kDtype>
struct Numbers;

template <>
struct Numbers<SYMM_FLOAT32> {
  using Lane = float;
  static constexpr int kLanes = 2;
  static constexpr int kElement = 4;
  static constexpr bool kSteers = true;

  __device__ __forceinline__ static void decode(uint2 unit, Lane (&lanes)[kLanes]) {
    lanes[0] = __uint_as_float(unit.x);
    lanes[1] = __uint_as_float(unit.y);
  }
  __device__ __forceinline__ static uint2 encode(const Lane (&lanes)[kLanes], bool) {
    return {canonical(lanes[0]), canonical(lanes[1])};
  }
  __device__ __forceinline__ static uint32_t canonical(float f) {
    return f != f ? ~0u : __float_as_uint(f);
  }
};

template <>
struct Numbers<SYMM_FLOAT64> {
  using Lane = double;
  static constexpr int kLanes = 1;
  static constexpr int kElement = 8;
  static constexpr bool kSteers = true;

  __device__ __forceinline__ static void decode(uint2 unit, Lane (&lanes)[kLanes]) {
    lanes[0] = double_of(unit);
  }
  __device__ __forceinline__ static uint2 encode(const Lane (&lanes)[kLanes], bool) {
    return lanes[0] != lanes[0] ? uint2{~0u, ~0u} : bits_of(lanes[0]);
  }
};

template <>
struct Numbers<SYMM_BFLOAT16> {
  using Lane = float;
  static constexpr int kLanes = 4;
  static constexpr int kElement = 2;
  static constexpr bool kSteers = true;

  __device__ __forceinline__ static void decode(uint2 unit, Lane (&lanes)[kLanes]) {
    lanes[0] = __uint_as_float(unit.x << 16);
    lanes[1] = __uint_as_float(unit.x & 0xffff0000u);
    lanes[2] = __uint_as_float(unit.y << 16);
    lanes[3] = __uint_as_float(unit.y & 0xffff0000u);
  }
  __device__ __forceinline__ static uint2 encode(const Lane (&lanes)[kLanes], bool) {
    return {pack(lanes[0], lanes[1]), pack(lanes[2], lanes[3])};
  }
  __device__ __forceinline__ static uint32_t pack(float low, float high) {
    uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return canonical_nans<0x7fff7fffu>(word);
  }
};

// Two halves of a word as floats, and back.
__device__ __forceinline__ void widen_halves(uint32_t word, float& low, float& high) {
  asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
      : "=f"(low), "=f"(high)
      : "r"(word));
}
__device__ __forceinline__ uint32_t narrow_to_halves(float low, float high) {
  uint32_t word;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}

template <>
struct Numbers<SYMM_FLOAT16> {
  using Lane = float;
  static constexpr int kLanes = 4;
  static constexpr int kElement = 2;
  static constexpr bool kSteers = true;

  __device__ __forceinline__ static void decode(uint2 unit, Lane (&lanes)[kLanes]) {
    widen_halves(unit.x, lanes[0], lanes[1]);
    widen_halves(unit.y, lanes[2], lanes[3]);
  }
  __device__ __forceinline__ static uint2 encode(const Lane (&lanes)[kLanes], bool) {
    return {canonical_nans<0x7fff7fffu>(narrow_to_halves(lanes[0], lanes[1])),
            canonical_nans<0x7fff7fffu>(narrow_to_halves(lanes[2], lanes[3]))};
  }
};

// ---- float8 -------------------------------------------------------------------------------------

// Where there is no instruction for it: the float's magnitude in a format of kMantissa mantissa
// bits and this bias, at most kLargest.
template <int kMantissa, int kBias, uint32_t kLargest>
__device__ __forceinline__ uint32_t narrow_to_float8(float f) {
  constexpr int kDropped = 23 - kMantissa;
  constexpr uint32_t kRebias = static_cast<uint32_t>(127 - kBias) << 23;
  constexpr uint32_t kSmallestNormal = static_cast<uint32_t>(128 - kBias) << 23;
  // The power of two whose unit in the last place is the smallest subnormal: adding it rounds to
  // a multiple of that.
  constexpr uint32_t kMagic = static_cast<uint32_t>(127 + 24 - kBias - kMantissa) << 23;
  const uint32_t bits = __float_as_uint(f);
  if (f != f) return 0xffu;
  const uint32_t a = bits & 0x7fffffffu;
  uint32_t magnitude;
  if (a < kSmallestNormal) {
    magnitude = __float_as_uint(__fadd_rn(__uint_as_float(a), __uint_as_float(kMagic))) - kMagic;
  } else {
    magnitude = (a - kRebias + (1u << (kDropped - 1)) - 1 + ((a >> kDropped) & 1u)) >> kDropped;
  }
  return min(magnitude, kLargest) | (bits >> 31) << 7;
}

template <>
struct Numbers<SYMM_FLOAT8_E5M2> {
  using Lane = float;
  static constexpr int kLanes = 8;
  static constexpr int kElement = 1;
  static constexpr bool kSteers = false;

  // The upper byte of a half.
  __device__ __forceinline__ static void decode_word(uint32_t word, Lane* lanes) {
    widen_halves(__byte_perm(word, 0, 0x1404), lanes[0], lanes[1]);
    widen_halves(__byte_perm(word, 0, 0x3424), lanes[2], lanes[3]);
  }
  __device__ __forceinline__ static void decode(uint2 unit, Lane (&lanes)[kLanes]) {
    decode_word(unit.x, lanes);
    decode_word(unit.y, lanes + 4);
  }
  __device__ __forceinline__ static uint32_t encode_word(const Lane* lanes, bool extreme) {
    if (extreme) {
      // An operand, infinity perhaps: a half holds it exactly.
      const uint32_t low = narrow_to_halves(lanes[0], lanes[1]);
      const uint32_t high = narrow_to_halves(lanes[2], lanes[3]);
      return canonical_nans<0x7f7f7f7fu>(__byte_perm(low, high, 0x7531));
    }
#if __CUDA_ARCH__ >= 890
    uint32_t word;
    asm("{ .reg .b16 l, h; cvt.rn.satfinite.e5m2x2.f32 l, %2, %1;"
        " cvt.rn.satfinite.e5m2x2.f32 h, %4, %3; mov.b32 %0, {l, h}; }"
        : "=r"(word)
        : "f"(lanes[0]), "f"(lanes[1]), "f"(lanes[2]), "f"(lanes[3]));
    return canonical_nans<0x7f7f7f7fu>(word);
#else
    uint32_t word = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) word |= narrow_to_float8<2, 15, 0x7b>(lanes[i]) << (8 * i);
    return word;
#endif
  }
  __device__ __forceinline__ static uint2 encode(const Lane (&lanes)[kLanes], bool extreme) {
    return {encode_word(lanes, extreme), encode_word(lanes + 4, extreme)};
  }
};

template <>
struct Numbers<SYMM_FLOAT8_E4M3> {
  using Lane = float;
  static constexpr int kLanes = 8;
  static constexpr int kElement = 1;
  static constexpr bool kSteers = false;

  __device__ __forceinline__ static void decode_word(uint32_t word, Lane* lanes) {
#if __CUDA_ARCH__ >= 890
    uint32_t low;
    uint32_t high;
    asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.rn.f16x2.e4m3x2 %0, l;"
        " cvt.rn.f16x2.e4m3x2 %1, h; }"
        : "=r"(low), "=r"(high)
        : "r"(word));
    widen_halves(low, lanes[0], lanes[1]);
    widen_halves(high, lanes[2], lanes[3]);
#else
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t byte = word >> (8 * i);
      // Exponent and mantissa where a half has them: too small by the difference of the biases.
      float low;
      float unused;
      widen_halves((byte & 0x7fu) << 7, low, unused);
      const uint32_t magnitude =
          (byte & 0x7fu) == 0x7fu ? 0x7fffffffu : __float_as_uint(__fmul_rn(low, 256.0f));
      lanes[i] = __uint_as_float(magnitude | (byte & 0x80u) << 24);
    }
#endif
  }
  __device__ __forceinline__ static void decode(uint2 unit, Lane (&lanes)[kLanes]) {
    decode_word(unit.x, lanes);
    decode_word(unit.y, lanes + 4);
  }
  __device__ __forceinline__ static uint32_t encode_word(const Lane* lanes) {
#if __CUDA_ARCH__ >= 890
    uint32_t word;
    asm("{ .reg .b16 l, h; cvt.rn.satfinite.e4m3x2.f32 l, %2, %1;"
        " cvt.rn.satfinite.e4m3x2.f32 h, %4, %3; mov.b32 %0, {l, h}; }"
        : "=r"(word)
        : "f"(lanes[0]), "f"(lanes[1]), "f"(lanes[2]), "f"(lanes[3]));
    return canonical_nans<0x7f7f7f7fu>(word);
#else
    uint32_t word = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) word |= narrow_to_float8<3, 7, 0x7e>(lanes[i]) << (8 * i);
    return word;
#endif
  }
  __device__ __forceinline__ static uint2 encode(const Lane (&lanes)[kLanes], bool) {
    return {encode_word(lanes), encode_word(lanes + 4)};
  }
};

// ---- Integers -----------------------------------------------------------------------------------

// 32 bits and 64 bits, in the type that says how they compare and divide.
template <class T>
struct Integers32 {
  using Lane = T;
  static constexpr int kLanes = 2;
  static constexpr int kElement = 4;
  static constexpr bool kSteers = false;

  __device__ __forceinline__ static void decode(uint2 unit, Lane (&lanes)[kLanes]) {
    lanes[0] = static_cast<T>(unit.x);
    lanes[1] = static_cast<T>(unit.y);
  }
  __device__ __forceinline__ static uint2 encode(const Lane (&lanes)[kLanes], bool) {
    return {static_cast<uint32_t>(lanes[0]), static_cast<uint32_t>(lanes[1])};
  }
  __device__ __forceinline__ static T wrap(T lane) { return lane; }
};

template <class T>
struct Integers64 {
  using Lane = T;
  static constexpr int kLanes = 1;
  static constexpr int kElement = 8;
  static constexpr bool kSteers = false;

  __device__ __forceinline__ static void decode(uint2 unit, Lane (&lanes)[kLanes]) {
    lanes[0] = static_cast<T>(whole_of(unit));
  }
  __device__ __forceinline__ static uint2 encode(const Lane (&lanes)[kLanes], bool) {
    return halves_of(static_cast<uint64_t>(lanes[0]));
  }
  __device__ __forceinline__ static T wrap(T lane) { return lane; }
};

// 8 bits, each in 32: sums and products need to be wrapped only before they are compared or
// divided.
template <class T>
struct Integers8 {
  using Lane = int32_t;
  static constexpr int kLanes = 8;
  static constexpr int kElement = 1;
  static constexpr bool kSteers = false;

  __device__ __forceinline__ static void decode(uint2 unit, Lane (&lanes)[kLanes]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      lanes[i] = static_cast<T>(unit.x >> (8 * i));
      lanes[4 + i] = static_cast<T>(unit.y >> (8 * i));
    }
  }
  __device__ __forceinline__ static uint2 encode(const Lane (&lanes)[kLanes], bool) {
    uint2 unit{0, 0};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      unit.x |= (static_cast<uint32_t>(lanes[i]) & 0xffu) << (8 * i);
      unit.y |= (static_cast<uint32_t>(lanes[4 + i]) & 0xffu) << (8 * i);
    }
    return unit;
  }
  __device__ __forceinline__ static Lane wrap(Lane lane) { return static_cast<T>(lane); }
};

template <>
struct Numbers<SYMM_INT8> : Integers8<int8_t> {};
template <>
struct Numbers<SYMM_UINT8> : Integers8<uint8_t> {};
template <>
struct Numbers<SYMM_INT32> : Integers32<int32_t> {};
template <>
struct Numbers<SYMM_UINT32> : Integers32<uint32_t> {};
template <>
struct Numbers<SYMM_INT64> : Integers64<int64_t> {};
template <>
struct Numbers<SYMM_UINT64> : Integers64<uint64_t> {};

}  // namespace symm::cuda

#endif  // SYMM_KERNELS_CUDA_NUMBERS_CUH_
