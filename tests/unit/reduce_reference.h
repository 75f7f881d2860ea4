// What kernels/cpu must compute, said a second time and as plainly as possible: one element at a
// time, narrow floats by their definition in double, rounding by looking for the nearest number.
#ifndef SYMM_TESTS_UNIT_REDUCE_REFERENCE_H_
#define SYMM_TESTS_UNIT_REDUCE_REFERENCE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "capi/symm.h"

namespace symm::cpu::reference {

// A float of one sign bit, `exponent` and `mantissa` bits.
struct Format {
  int exponent;
  int mantissa;
  bool infinities;  // whether the top exponent holds infinity and NaN; otherwise one NaN a sign
};
constexpr Format kFloat16{5, 10, true};
constexpr Format kBfloat16{8, 7, true};
constexpr Format kFloat8E4m3{4, 3, false};
constexpr Format kFloat8E5m2{5, 2, true};

inline double decode(const Format& format, uint32_t pattern) {
  const int bits = format.exponent + format.mantissa;
  const uint32_t magnitude = pattern & ((1u << bits) - 1);
  const auto exponent = static_cast<int>(magnitude >> format.mantissa);
  const auto mantissa = static_cast<double>(magnitude & ((1u << format.mantissa) - 1));
  const int bias = (1 << (format.exponent - 1)) - 1;
  const int top = (1 << format.exponent) - 1;
  double value = 0;
  if (format.infinities && exponent == top) {
    value = mantissa == 0 ? INFINITY : NAN;
  } else if (!format.infinities && magnitude == (1u << bits) - 1) {
    value = NAN;
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, 1 - bias - format.mantissa);
  } else {
    value = std::ldexp(1 + std::ldexp(mantissa, -format.mantissa), exponent - bias);
  }
  return (pattern >> bits) & 1 ? -value : value;
}

// Rounds to nearest even by search among all the numbers there are. What is too large becomes
// infinity, or the largest number if it `saturates`.
class Encoder {
 public:
  Encoder(const Format& format, bool saturates) : format_(format), saturates_(saturates) {
    for (uint32_t pattern = 0; std::isfinite(decode(format, pattern)); ++pattern) {
      finite_.push_back(decode(format, pattern));
    }
    // Where the number after the largest would be: halfway to it is where infinity begins.
    const size_t n = finite_.size();
    beyond_ = finite_[n - 1] + (finite_[n - 1] - finite_[n - 2]);
  }

  uint32_t operator()(double value) const {
    const int bits = format_.exponent + format_.mantissa;
    if (std::isnan(value)) return (2u << bits) - 1;  // all ones
    const uint32_t sign = std::signbit(value) ? 1u << bits : 0;
    return sign | magnitude(std::fabs(value));
  }

 private:
  uint32_t magnitude(double value) const {
    const auto largest = static_cast<uint32_t>(finite_.size() - 1);
    if (value >= finite_[largest]) {
      if (saturates_) return largest;
      // The largest number's pattern is odd, so that a tie goes to infinity.
      return value - finite_[largest] < beyond_ - value ? largest : largest + 1;
    }
    const auto above = std::upper_bound(finite_.begin(), finite_.end(), value);
    const auto high = static_cast<uint32_t>(above - finite_.begin());
    const uint32_t low = high - 1;
    const double down = value - finite_[low];
    const double up = finite_[high] - value;
    if (down != up) return down < up ? low : high;
    return low % 2 == 0 ? low : high;
  }

  Format format_;
  bool saturates_;
  std::vector<double> finite_;  // the number of every non-negative finite pattern, rising
  double beyond_;
};

template <class T>
T accumulate(symm_op op, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    switch (op) {
      case SYMM_PROD:
        return a * b;
      case SYMM_MAX:
      case SYMM_MIN:
        if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
        if (a == b) {  // -0 and +0 too
          return std::signbit(a) == (op == SYMM_MIN) ? a : b;
        }
        return (a > b) == (op == SYMM_MAX) ? a : b;
      default:
        return a + b;
    }
  } else {
    // 64 bits hold the low bits of every sum and product.
    const auto x = static_cast<uint64_t>(a);
    const auto y = static_cast<uint64_t>(b);
    switch (op) {
      case SYMM_PROD:
        return static_cast<T>(x * y);
      case SYMM_MAX:
        return std::max(a, b);
      case SYMM_MIN:
        return std::min(a, b);
      default:
        return static_cast<T>(x + y);
    }
  }
}

template <class T>
T reduce(symm_op op, const std::vector<T>& operands) {
  T result = operands[0];
  for (size_t i = 1; i < operands.size(); ++i) result = accumulate<T>(op, result, operands[i]);
  if (op != SYMM_AVG) return result;
  // An integer type need not hold the number of operands.
  using Divisor = std::conditional_t<std::is_floating_point_v<T>, T,
                                     std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>;
  return static_cast<T>(result / static_cast<Divisor>(operands.size()));
}

template <class T>
uint64_t bits_of(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}

template <class T>
uint64_t reduce_bits(symm_op op, const std::vector<uint64_t>& patterns) {
  std::vector<T> operands;
  for (const uint64_t pattern : patterns) {
    T operand;
    std::memcpy(&operand, &pattern, sizeof(T));
    operands.push_back(operand);
  }
  const T result = reduce<T>(op, operands);
  if (result != result) return ~uint64_t{0} >> (64 - 8 * sizeof(T));
  return bits_of(result);
}

inline uint64_t reduce_narrow(symm_op op, const Format& format, const Encoder& encode,
                              const std::vector<uint64_t>& patterns) {
  std::vector<float> operands;
  for (const uint64_t pattern : patterns) {
    operands.push_back(static_cast<float>(decode(format, static_cast<uint32_t>(pattern))));
  }
  return encode(reduce<float>(op, operands));
}

// The pattern that `op` over the elements of these patterns gives; one alone is copied.
inline uint64_t reduce(symm_dtype dtype, symm_op op, const std::vector<uint64_t>& patterns) {
  static const Encoder float16(kFloat16, false);
  static const Encoder bfloat16(kBfloat16, false);
  static const Encoder e4m3(kFloat8E4m3, true);
  static const Encoder e5m2(kFloat8E5m2, true);
  static const Encoder e5m2_infinite(kFloat8E5m2, false);
  // MAX and MIN choose an operand, where infinity is no overflow.
  const bool chooses = op == SYMM_MAX || op == SYMM_MIN;
  if (patterns.size() == 1) return patterns[0];
  switch (dtype) {
    case SYMM_INT8:
      return reduce_bits<int8_t>(op, patterns);
    case SYMM_UINT8:
      return reduce_bits<uint8_t>(op, patterns);
    case SYMM_INT32:
      return reduce_bits<int32_t>(op, patterns);
    case SYMM_UINT32:
      return reduce_bits<uint32_t>(op, patterns);
    case SYMM_INT64:
      return reduce_bits<int64_t>(op, patterns);
    case SYMM_UINT64:
      return reduce_bits<uint64_t>(op, patterns);
    case SYMM_FLOAT32:
      return reduce_bits<float>(op, patterns);
    case SYMM_FLOAT64:
      return reduce_bits<double>(op, patterns);
    case SYMM_FLOAT16:
      return reduce_narrow(op, kFloat16, float16, patterns);
    case SYMM_BFLOAT16:
      return reduce_narrow(op, kBfloat16, bfloat16, patterns);
    case SYMM_FLOAT8_E4M3:
      return reduce_narrow(op, kFloat8E4m3, e4m3, patterns);
    default:
      return reduce_narrow(op, kFloat8E5m2, chooses ? e5m2_infinite : e5m2, patterns);
  }
}

}  // namespace symm::cpu::reference

#endif  // SYMM_TESTS_UNIT_REDUCE_REFERENCE_H_
