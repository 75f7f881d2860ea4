// How elements become accumulators and come back: one struct a kind of element.
//
// A format has
//   Element                 a type of an element's size
//   Lane, kParts            a vector of elements becomes kParts vectors of Lanes
//   Stored                  a vector of elements as they are in memory
//   decode(Stored) -> Parts, encode(Parts) -> Stored, rounded to nearest even
//   decode_at(from) -> Parts, where it is faster than decoding what was loaded
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

template <class Lane, int kParts>
struct Parts {
  Vector<Lane> part[kParts];
};

// The floats' bits, all set where one is NaN.
template <class T>
[[gnu::always_inline]] inline Vector<Unsigned<T>> canonical(Vector<T> f) {
  using Bits = Vector<Unsigned<T>>;
  return bits<Bits>(f) | bits<Bits>(f != f);
}

// Integers, float32 and float64: the elements themselves.
template <class T>
struct Whole {
  using Element = T;
  using Lane = T;
  using Stored = Vector<T>;
  static constexpr int kParts = 1;

  [[gnu::always_inline]] static Parts<T, 1> decode(Stored stored) { return {{stored}}; }

  [[gnu::always_inline]] static Stored encode(const Parts<T, 1>& parts) {
    if constexpr (kIsFloat<T>) {
      return bits<Stored>(canonical<T>(parts.part[0]));
    } else {
      return parts.part[0];
    }
  }
};

// bfloat16, at the top of a word: decode() ignores what is below it, encode() leaves zeros there.
struct Bfloat16 {
  using Element = uint16_t;

  [[gnu::always_inline]] static Floats decode(Words top) { return bits<Floats>(top & 0xffff0000u); }

  [[gnu::always_inline]] static Words encode(Floats f) {
    const Words u = bits<Words>(f);
    const Words rounded = u + 0x7fffu + ((u >> 16) & 1u);
    return (rounded | bits<Words>(f != f)) & 0xffff0000u;
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

  [[gnu::always_inline]] static Floats decode(Words top) {
    // Exponent and mantissa where float32 has them; only the bias is wrong.
    const Words x = (top & kMagnitude) >> (8 - kExponent);
    const Floats normal = bits<Floats>(x + kRebias);
    // With the exponent of the smallest normal number the leading one is a one too many.
    const Floats subnormal =
        bits<Floats>(x + kSmallestNormal) - bits<Floats>(Words{} + kSmallestNormal);
    Words result = bits<Words>(bits<Ints>(x) < (1 << 23) ? subnormal : normal);
    if constexpr (kInfinities) {
      constexpr int32_t kTopExponent = ((1 << kExponent) - 1) << 23;
      result |= bits<Words>(bits<Ints>(x) >= kTopExponent) & 0x7f800000u;
    } else {
      result |= bits<Words>(x == kMagnitude >> (8 - kExponent));
    }
    return bits<Floats>(result | (top & kSign));
  }

  [[gnu::always_inline]] static Words encode(Floats f) {
    const Words u = bits<Words>(f);
    const Words a = u & ~kSign;
    constexpr uint32_t kAlmostHalf = (1u << (kDropped - 1)) - 1;
    const Words normal = (a + (kAlmostHalf - kRebias) + ((a >> kDropped) & 1u)) >> kDropped;
    // The addition rounds to a multiple of the smallest subnormal, whose count is then the
    // mantissa.
    const Words subnormal = bits<Words>(bits<Floats>(a) + bits<Floats>(Words{} + kMagic)) - kMagic;
    Words magnitude = bits<Ints>(a) < static_cast<int32_t>(kSmallestNormal) ? subnormal : normal;
    magnitude = magnitude < kLargest ? magnitude : Words{} + kLargest;
    return ((magnitude | bits<Words>(f != f)) << kBelow) | (u & kSign);
  }
};

using Float16 = SmallFloat<uint16_t, 5, 10, 0x7c00, true>;
using Float8E4m3 = SmallFloat<uint8_t, 4, 3, 0x7e, false>;  // beyond 448: 448
using Float8E5m2 = SmallFloat<uint8_t, 5, 2, 0x7b, true>;   // beyond 57344: 57344
// The greatest and the least are operands, so that an infinity among them is no overflow.
using Float8E5m2Infinite = SmallFloat<uint8_t, 5, 2, 0x7c, true>;

// Narrow floats of a format above, accumulated in float32.
template <class Format>
struct Narrow {
  using Element = typename Format::Element;
  using Lane = float;
  using Stored = Words;
  static constexpr int kBits = 8 * sizeof(Element);
  static constexpr int kParts = 32 / kBits;

  [[gnu::always_inline]] static Parts<float, kParts> decode(Words words) {
    Parts<float, kParts> parts;
#pragma GCC unroll 4
    for (int k = 0; k < kParts; ++k) {
      parts.part[k] = Format::decode(words << (32 - kBits * (k + 1)));
    }
    return parts;
  }

  [[gnu::always_inline]] static Words encode(const Parts<float, kParts>& parts) {
    Words words{};
#pragma GCC unroll 4
    for (int k = 0; k < kParts; ++k) {
      words |= Format::encode(parts.part[k]) >> (32 - kBits * (k + 1));
    }
    return words;
  }
};

#if defined(__F16C__)
// float16 by the CPU's own conversions, which give the same bits. Part k is the k-th half.
struct ConvertedFloat16 {
  using Element = uint16_t;
  using Lane = float;
  using Stored = Words;
  static constexpr int kParts = 2;

  [[gnu::always_inline]] static Parts<float, 2> decode(Words words) {
    return {{widen(half<0>(words)), widen(half<1>(words))}};
  }

  // Conversions that load for themselves save the shuffle that takes a vector in halves.
  [[gnu::always_inline]] static Parts<float, 2> decode_at(const std::byte* from) {
    return {{widen(load<Half>(from)), widen(load<Half>(from + kVectorBytes / 2))}};
  }

  [[gnu::always_inline]] static Words encode(const Parts<float, 2>& parts) {
    return join(narrow(canonical<float>(parts.part[0])), narrow(canonical<float>(parts.part[1])));
  }

 private:
  static constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

#if defined(__AVX512F__)
  // The forms with a mask, as GCC 12 warns of an uninitialised value inside those without.
  using Half = __m256i;

  template <int kIndex>
  [[gnu::always_inline]] static Half half(Words words) {
    return _mm512_maskz_extracti64x4_epi64(0xff, bits<__m512i>(words), kIndex);
  }
  [[gnu::always_inline]] static Floats widen(Half half) {
    return bits<Floats>(_mm512_maskz_cvtph_ps(0xffff, half));
  }
  [[gnu::always_inline]] static Half narrow(Words floats) {
    return _mm512_maskz_cvtps_ph(0xffff, bits<__m512>(floats), kNearest);
  }
  [[gnu::always_inline]] static Words join(Half low, Half high) {
    return bits<Words>(_mm512_maskz_inserti64x4(0xff, _mm512_castsi256_si512(low), high, 1));
  }
#else
  using Half = __m128i;

  template <int kIndex>
  [[gnu::always_inline]] static Half half(Words words) {
    return _mm256_extracti128_si256(bits<__m256i>(words), kIndex);
  }
  [[gnu::always_inline]] static Floats widen(Half half) {
    return bits<Floats>(_mm256_cvtph_ps(half));
  }
  [[gnu::always_inline]] static Half narrow(Words floats) {
    return _mm256_cvtps_ph(bits<__m256>(floats), kNearest);
  }
  [[gnu::always_inline]] static Words join(Half low, Half high) {
    return bits<Words>(_mm256_set_m128i(high, low));
  }
#endif
};
#else
using ConvertedFloat16 = Narrow<Float16>;
#endif

}  // namespace
}  // namespace symm::cpu

#endif  // SYMM_KERNELS_CPU_FORMATS_H_
