// The arithmetic of symm_op on vectors of T.
#ifndef SYMM_KERNELS_CPU_OPERATIONS_H_
#define SYMM_KERNELS_CPU_OPERATIONS_H_

#include <cstdint>

#include "capi/symm.h"
#include "kernels/cpu/vector.h"

namespace symm::cpu {
namespace {

// The larger (kMax) or smaller of two floats; all ones where either is NaN.
template <bool kMax, class T>
[[gnu::always_inline]] inline Vector<T> extreme(Vector<T> a, Vector<T> b) {
  using V = Vector<T>;
  using Bits = Vector<Unsigned<T>>;
  const Bits nan = bits<Bits>(a != a) | bits<Bits>(b != b);
  // Where a and b are equal the two choices are b and a, whose bits differ in the sign of zero
  // only.
  if constexpr (kMax) {
    const V one = a > b ? a : b;
    const V other = b > a ? b : a;
    return bits<V>((bits<Bits>(one) & bits<Bits>(other)) | nan);
  } else {
    const V one = a < b ? a : b;
    const V other = b < a ? b : a;
    return bits<V>(bits<Bits>(one) | bits<Bits>(other) | nan);
  }
}

template <symm_op kOp, class T>
[[gnu::always_inline]] inline Vector<T> combine(Vector<T> a, Vector<T> b) {
  using V = Vector<T>;
  if constexpr (kOp == SYMM_MAX || kOp == SYMM_MIN) {
    if constexpr (kIsFloat<T>) {
      return extreme<kOp == SYMM_MAX, T>(a, b);
    } else {
      return kOp == SYMM_MAX ? (a > b ? a : b) : (a < b ? a : b);
    }
  } else if constexpr (kIsFloat<T>) {
    return kOp == SYMM_PROD ? a * b : a + b;
  } else {
    // Unsigned arithmetic wraps; signed overflow would be undefined.
    using Bits = Vector<Unsigned<T>>;
    const Bits x = bits<Bits>(a);
    const Bits y = bits<Bits>(b);
    return bits<V>(kOp == SYMM_PROD ? x * y : x + y);
  }
}

// Integer division by n >= 2, towards zero. No vector instruction does it, but a quotient that is
// not a whole number is at least 1/n away from the next one, which is far more than float32 (8
// bits) or float64 (32 bits) rounds by; so the truncated floating-point quotient is exact.
template <class T>
[[gnu::always_inline]] inline Vector<T> divide(Vector<T> sum, int n) {
  using V = Vector<T>;
  if constexpr (sizeof(T) == 1) {
    const Words words = bits<Words>(sum);
    const auto divisor = static_cast<float>(n);
    Words result{};
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      const Words top = words << (24 - 8 * k);
      Ints value;
      if constexpr (static_cast<T>(-1) < 0) {
        value = bits<Ints>(top) >> 24;
      } else {
        value = bits<Ints>(top >> 24);
      }
      const Floats quotient = __builtin_convertvector(value, Floats) / divisor;
      result |= (bits<Words>(__builtin_convertvector(quotient, Ints)) & 0xffu) << (8 * k);
    }
    return bits<V>(result);
  } else if constexpr (sizeof(T) == 4) {
    constexpr bool kSigned = static_cast<T>(-1) < 0;
    // Conversions of signed integers are the ones there are; the quotient fits one, as n >= 2.
    const Ints shifted = bits<Ints>(kSigned ? sum : sum ^ static_cast<T>(0x80000000u));
    const double unshift = kSigned ? 0.0 : 2147483648.0;
    const auto divisor = static_cast<double>(n);
    const auto quotients = [&](auto half) {
      const Vector<double> value = __builtin_convertvector(half, Vector<double>) + unshift;
      return __builtin_convertvector(value / divisor, decltype(half));
    };
    return bits<V>(join(quotients(low_half(shifted)), quotients(high_half(shifted))));
  } else {
    return sum / static_cast<T>(n);
  }
}

// What is left to do once all n operands are combined.
template <symm_op kOp, class T>
[[gnu::always_inline]] inline Vector<T> finish(Vector<T> accumulated, int n) {
  if constexpr (kOp != SYMM_AVG) {
    return accumulated;
  } else if constexpr (kIsFloat<T>) {
    return accumulated / static_cast<T>(n);
  } else {
    return divide<T>(accumulated, n);
  }
}

}  // namespace
}  // namespace symm::cpu

#endif  // SYMM_KERNELS_CPU_OPERATIONS_H_
