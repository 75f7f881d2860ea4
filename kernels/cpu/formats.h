// How elements become accumulators and come back: one struct a kind of element.
//
// A format has
//   Element                 a type of an element's size
//   Lane, kParts            kBytes of elements become kParts vectors of Lanes
//   decode<kBytes>(from)    -> Parts, from memory
//   encode<kBytes>(parts)   -> a vector whose first kBytes are the elements, rounded to nearest even
// A NaN is encoded as all ones, so that its bits depend neither on the level nor on which operand
// of an addition the compiler made the first.
//
// Narrow floats are taken apart in 32-bit lanes, never shuffled: a 32-bit word holds two or four
// elements, and part k is the k-th element of every word. Which element sits in which lane does not
// matter, as every source is taken apart in the same way.
#ifndef SYMM_KERNELS_CPU_FORMATS_H_
#define SYMM_KERNELS_CPU_FORMATS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/vector.h"

namespace symm::cpu {
namespace {

template <class Lane, int kBytes, int kParts>
struct Parts {
  Vector<Lane, kBytes> part[kParts];
};

// All ones where f is NaN.
template <int kBytes>
[[gnu::always_inline]] inline Words<kBytes> nan_mask(Floats<kBytes> f) {
  return bits<Words<kBytes>>(f != f);
}

// Integers, float32 and float64: the elements themselves.
template <class T>
struct Whole {
  using Element = T;
  using Lane = T;
  static constexpr int kParts = 1;

  template <int kBytes>
  [[gnu::always_inline]] static Parts<T, kBytes, 1> decode(const std::byte* from) {
    return {{load<Vector<T, kBytes>>(from)}};
  }

  template <int kBytes>
  [[gnu::always_inline]] static auto encode(const Parts<T, kBytes, 1>& parts) {
    if constexpr (kIsFloat<T>) {
      using Bits = Vector<Unsigned<T>, kBytes>;
      const Vector<T, kBytes> value = parts.part[0];
      return bits<Bits>(value) | bits<Bits>(value != value);
    } else {
      return parts.part[0];
    }
  }
};

// bfloat16, at the top of a word: decode() ignores what is below it, encode() leaves zeros there.
struct Bfloat16 {
  using Element = uint16_t;

  template <int kBytes>
  [[gnu::always_inline]] static Floats<kBytes> decode(Words<kBytes> top) {
    return bits<Floats<kBytes>>(top & 0xffff0000u);
  }

  template <int kBytes>
  [[gnu::always_inline]] static Words<kBytes> encode(Floats<kBytes> f) {
    const auto u = bits<Words<kBytes>>(f);
    const Words<kBytes> rounded = u + 0x7fffu + ((u >> 16) & 1u);
    return (rounded | nan_mask<kBytes>(f)) & 0xffff0000u;
  }
};

// Any other IEEE-like float of one sign bit, kExponent and kMantissa bits, at the top of a word.
// kLargest is the magnitude that everything larger becomes. Without infinities (float8 e4m3) the
// only NaN is the magnitude of all ones.
template <class ElementType, int kExponent, int kMantissa, uint32_t kLargest, bool kInfinities>
struct SmallFloat {
  using Element = ElementType;

  static constexpr int kBias = (1 << (kExponent - 1)) - 1;
  static constexpr int kDropped = 23 - kMantissa;  // bits of float32's mantissa that go
  static constexpr int kBelow = 31 - kExponent - kMantissa;
  static constexpr uint32_t kSign = 0x80000000u;
  static constexpr uint32_t kMagnitude = ((1u << (kExponent + kMantissa)) - 1) << kBelow;
  static constexpr uint32_t kRebias = static_cast<uint32_t>(127 - kBias) << 23;
  static constexpr uint32_t kSmallestNormal = static_cast<uint32_t>(128 - kBias) << 23;
  // The power of two whose unit in the last place is the smallest subnormal.
  static constexpr uint32_t kMagic = static_cast<uint32_t>(127 + 24 - kBias - kMantissa) << 23;

  template <int kBytes>
  [[gnu::always_inline]] static Floats<kBytes> decode(Words<kBytes> top) {
    using F = Floats<kBytes>;
    using W = Words<kBytes>;
    using I = Vector<int32_t, kBytes>;
    // Exponent and mantissa where float32 has them; only the bias is wrong.
    const W x = (top & kMagnitude) >> (8 - kExponent);
    const F normal = bits<F>(x + kRebias);
    // With the exponent of the smallest normal number the leading one is a one too many.
    const F subnormal = bits<F>(x + kSmallestNormal) - bits<F>(W{} + kSmallestNormal);
    W result = bits<W>(bits<I>(x) < (1 << 23) ? subnormal : normal);
    if constexpr (kInfinities) {
      constexpr int32_t kTopExponent = ((1 << kExponent) - 1) << 23;
      result |= bits<W>(bits<I>(x) >= kTopExponent) & 0x7f800000u;
    } else {
      result |= bits<W>(x == kMagnitude >> (8 - kExponent));
    }
    return bits<F>(result | (top & kSign));
  }

  template <int kBytes>
  [[gnu::always_inline]] static Words<kBytes> encode(Floats<kBytes> f) {
    using F = Floats<kBytes>;
    using W = Words<kBytes>;
    using I = Vector<int32_t, kBytes>;
    const W u = bits<W>(f);
    const W a = u & ~kSign;
    constexpr uint32_t kAlmostHalf = (1u << (kDropped - 1)) - 1;
    const W normal = (a + (kAlmostHalf - kRebias) + ((a >> kDropped) & 1u)) >> kDropped;
    // The addition rounds to a multiple of the smallest subnormal, whose count is then the mantissa.
    const W subnormal = bits<W>(bits<F>(a) + bits<F>(W{} + kMagic)) - kMagic;
    W magnitude = bits<I>(a) < static_cast<int32_t>(kSmallestNormal) ? subnormal : normal;
    magnitude = magnitude < kLargest ? magnitude : W{} + kLargest;
    return ((magnitude | nan_mask<kBytes>(f)) << kBelow) | (u & kSign);
  }
};

using Float16 = SmallFloat<uint16_t, 5, 10, 0x7c00, true>;
using Float8E4m3 = SmallFloat<uint8_t, 4, 3, 0x7e, false>;  // beyond 448: 448
using Float8E5m2 = SmallFloat<uint8_t, 5, 2, 0x7b, true>;   // beyond 57344: 57344

// Narrow floats of a format above, accumulated in float32.
template <class Format>
struct Narrow {
  using Element = typename Format::Element;
  using Lane = float;
  static constexpr int kBits = 8 * sizeof(Element);
  static constexpr int kParts = 32 / kBits;

  template <int kBytes>
  [[gnu::always_inline]] static Parts<float, kBytes, kParts> decode(const std::byte* from) {
    const auto words = load<Words<kBytes>>(from);
    Parts<float, kBytes, kParts> parts;
#pragma GCC unroll 4
    for (int k = 0; k < kParts; ++k) {
      parts.part[k] = Format::template decode<kBytes>(words << (32 - kBits * (k + 1)));
    }
    return parts;
  }

  template <int kBytes>
  [[gnu::always_inline]] static Words<kBytes> encode(const Parts<float, kBytes, kParts>& parts) {
    Words<kBytes> words{};
#pragma GCC unroll 4
    for (int k = 0; k < kParts; ++k) {
      words |= Format::template encode<kBytes>(parts.part[k]) >> (32 - kBits * (k + 1));
    }
    return words;
  }
};

#if defined(__F16C__)
// float16 by the CPU's own conversions, which give the same bits. Part k is the k-th half.
struct ConvertedFloat16 {
  using Element = uint16_t;
  using Lane = float;
  static constexpr int kParts = 2;
  static constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

  template <int kBytes>
  [[gnu::always_inline]] static Parts<float, kBytes, 2> decode(const std::byte* from) {
    return {{widen<kBytes>(from), widen<kBytes>(from + kBytes / 2)}};
  }

  template <int kBytes>
  [[gnu::always_inline]] static Words<kBytes> encode(const Parts<float, kBytes, 2>& parts) {
    const Words<kBytes> low = bits<Words<kBytes>>(parts.part[0]) | nan_mask<kBytes>(parts.part[0]);
    const Words<kBytes> high = bits<Words<kBytes>>(parts.part[1]) | nan_mask<kBytes>(parts.part[1]);
    return narrow(low, high);
  }

 private:
#if defined(__AVX512F__)
  // The forms with a mask, as GCC 12 warns of an uninitialised value inside those without.
  static constexpr __mmask16 kAll = 0xffff;

  template <int kBytes>
  [[gnu::always_inline]] static Floats<kBytes> widen(const std::byte* from) {
    return bits<Floats<64>>(_mm512_maskz_cvtph_ps(kAll, load<__m256i>(from)));
  }

  [[gnu::always_inline]] static Words<64> narrow(Words<64> low, Words<64> high) {
    const __m256i a = _mm512_maskz_cvtps_ph(kAll, bits<__m512>(low), kNearest);
    const __m256i b = _mm512_maskz_cvtps_ph(kAll, bits<__m512>(high), kNearest);
    return bits<Words<64>>(_mm512_maskz_inserti64x4(0xff, _mm512_castsi256_si512(a), b, 1));
  }
#else
  template <int kBytes>
  [[gnu::always_inline]] static Floats<kBytes> widen(const std::byte* from) {
    return bits<Floats<32>>(_mm256_cvtph_ps(load<__m128i>(from)));
  }

  [[gnu::always_inline]] static Words<32> narrow(Words<32> low, Words<32> high) {
    const __m128i a = _mm256_cvtps_ph(bits<__m256>(low), kNearest);
    const __m128i b = _mm256_cvtps_ph(bits<__m256>(high), kNearest);
    return bits<Words<32>>(_mm256_set_m128i(b, a));
  }
#endif
};
#else
using ConvertedFloat16 = Narrow<Float16>;
#endif

}  // namespace
}  // namespace symm::cpu

#endif  // SYMM_KERNELS_CPU_FORMATS_H_
