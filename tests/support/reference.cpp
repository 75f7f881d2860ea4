#include "tests/support/reference.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>

namespace symm_test {

const std::vector<symm_dtype> kAllDtypes = {
    SYMM_INT8,    SYMM_UINT8,   SYMM_INT32,   SYMM_UINT32,   SYMM_INT64,       SYMM_UINT64,
    SYMM_FLOAT16, SYMM_FLOAT32, SYMM_FLOAT64, SYMM_BFLOAT16, SYMM_FLOAT8_E4M3, SYMM_FLOAT8_E5M2};
const std::vector<symm_op> kAllOps = {SYMM_SUM, SYMM_PROD, SYMM_MAX, SYMM_MIN, SYMM_AVG};

namespace {

// A binary float of at most 16 bits.
struct Format {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;  // false: the top exponent holds numbers, all ones is NaN (float8 e4m3)
  bool saturates;     // overflow, infinity included, gives the largest number

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  uint32_t sign_bit() const { return 1u << (exponent_bits + mantissa_bits); }
  uint32_t magnitude_mask() const { return sign_bit() - 1; }
  uint32_t infinity() const { return ((1u << exponent_bits) - 1) << mantissa_bits; }
  uint32_t nan() const {
    return has_infinity ? infinity() | (1u << (mantissa_bits - 1)) : magnitude_mask();
  }
  uint32_t largest() const { return has_infinity ? infinity() - 1 : magnitude_mask() - 1; }

  double decode(uint32_t bits) const {
    const uint32_t magnitude = bits & magnitude_mask();
    const double sign = (bits & sign_bit()) != 0 ? -1.0 : 1.0;
    if (has_infinity ? magnitude > infinity() : magnitude == magnitude_mask()) return NAN;
    if (has_infinity && magnitude == infinity()) return sign * INFINITY;
    const int exponent = static_cast<int>(magnitude >> mantissa_bits);
    const int fraction = static_cast<int>(magnitude & ((1u << mantissa_bits) - 1));
    if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias() - mantissa_bits);
    return sign * std::ldexp(fraction + (1 << mantissa_bits), exponent - bias() - mantissa_bits);
  }

  // To nearest, ties to even: in steps of the last mantissa bit, which nearbyint rounds so.
  uint32_t encode(double value) const {
    if (std::isnan(value)) return nan();
    const uint32_t sign = std::signbit(value) ? sign_bit() : 0;
    const double magnitude = std::fabs(value);
    if (magnitude == 0) return sign;
    const uint32_t overflow = saturates ? largest() : infinity();
    if (std::isinf(magnitude)) return sign | overflow;
    const int exponent = std::max(std::ilogb(magnitude), 1 - bias());
    const double steps = std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent));
    // `steps` counts from the start of this binade's numbers; the encoding is linear in it.
    const double code = steps + std::ldexp(exponent + bias() - 1, mantissa_bits);
    return sign | (code > largest() ? overflow : static_cast<uint32_t>(code));
  }
};

const Format* small_format(symm_dtype dtype) {
  static constexpr Format kHalf{5, 10, true, false};
  static constexpr Format kBrain{8, 7, true, false};
  static constexpr Format kE4M3{4, 3, false, true};
  static constexpr Format kE5M2{5, 2, true, true};
  switch (dtype) {
    case SYMM_FLOAT16:
      return &kHalf;
    case SYMM_BFLOAT16:
      return &kBrain;
    case SYMM_FLOAT8_E4M3:
      return &kE4M3;
    case SYMM_FLOAT8_E5M2:
      return &kE5M2;
    default:
      return nullptr;
  }
}

template <class T>
T load(const void* elements, size_t index) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(elements) + index * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void store(void* elements, size_t index, T value) {
  std::memcpy(static_cast<std::byte*>(elements) + index * sizeof(T), &value, sizeof(T));
}

uint32_t load_small(const void* elements, size_t index, symm_dtype dtype) {
  return size_of(dtype) == 1 ? load<uint8_t>(elements, index) : load<uint16_t>(elements, index);
}

void store_small(void* elements, size_t index, symm_dtype dtype, uint32_t bits) {
  if (size_of(dtype) == 1) {
    store(elements, index, static_cast<uint8_t>(bits));
  } else {
    store(elements, index, static_cast<uint16_t>(bits));
  }
}

// Whether b replaces a as the greatest (least) so far: NaN beats all, -0 is less than +0.
template <class T>
bool replaces(T a, T b, bool greatest) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a)) return false;
    if (std::isnan(b)) return true;
    if (a == 0 && b == 0) {
      return greatest ? std::signbit(a) && !std::signbit(b) : !std::signbit(a) && std::signbit(b);
    }
  }
  return greatest ? b > a : b < a;
}

template <class T>
T accumulate(const std::vector<T>& operands, symm_op op) {
  T result = operands[0];
  for (size_t i = 1; i < operands.size(); ++i) {
    if (op == SYMM_MAX || op == SYMM_MIN) {
      if (replaces(result, operands[i], op == SYMM_MAX)) result = operands[i];
    } else if constexpr (std::is_integral_v<T>) {
      // Unsigned arithmetic of the widest kind wraps, and its low bits are those of any kind.
      const auto a = static_cast<uint64_t>(result);
      const auto b = static_cast<uint64_t>(operands[i]);
      result = static_cast<T>(op == SYMM_PROD ? a * b : a + b);
    } else {
      result = op == SYMM_PROD ? result * operands[i] : result + operands[i];
    }
  }
  if (op == SYMM_AVG) {
    if constexpr (std::is_unsigned_v<T>) {
      result = static_cast<T>(result / operands.size());
    } else {
      result = static_cast<T>(result / static_cast<T>(operands.size()));
    }
  }
  return result;
}

template <class T>
void reference_of(const std::vector<const void*>& inputs, size_t count, symm_op op, void* out) {
  std::vector<T> operands(inputs.size());
  for (size_t i = 0; i < count; ++i) {
    for (size_t rank = 0; rank < inputs.size(); ++rank) operands[rank] = load<T>(inputs[rank], i);
    store(out, i, accumulate(operands, op));
  }
}

void reference_small(const std::vector<const void*>& inputs, size_t count, symm_dtype dtype,
                     symm_op op, void* out) {
  const Format& format = *small_format(dtype);
  std::vector<float> operands(inputs.size());
  for (size_t i = 0; i < count; ++i) {
    for (size_t rank = 0; rank < inputs.size(); ++rank) {
      // Exact: every such number is a float.
      operands[rank] = static_cast<float>(format.decode(load_small(inputs[rank], i, dtype)));
    }
    const float result = accumulate(operands, op);
    uint32_t bits = format.encode(result);
    // The greatest and the least are operands, not sums: an infinity stays one.
    if ((op == SYMM_MAX || op == SYMM_MIN) && std::isinf(result)) {
      bits = format.infinity() | (result < 0 ? format.sign_bit() : 0);
    }
    store_small(out, i, dtype, bits);
  }
}

double float_value(const void* elements, size_t index, symm_dtype dtype) {
  if (const Format* format = small_format(dtype)) {
    return format->decode(load_small(elements, index, dtype));
  }
  if (dtype == SYMM_FLOAT32) return load<float>(elements, index);
  if (dtype == SYMM_FLOAT64) return load<double>(elements, index);
  return 0;
}

}  // namespace

size_t size_of(symm_dtype dtype) {
  switch (dtype) {
    case SYMM_INT32:
    case SYMM_UINT32:
    case SYMM_FLOAT32:
      return 4;
    case SYMM_INT64:
    case SYMM_UINT64:
    case SYMM_FLOAT64:
      return 8;
    case SYMM_FLOAT16:
    case SYMM_BFLOAT16:
      return 2;
    default:
      return 1;
  }
}

std::string name_of(symm_dtype dtype) {
  static const char* const kNames[] = {"int8",    "uint8",    "int32",       "uint32",
                                       "int64",   "uint64",   "float16",     "float32",
                                       "float64", "bfloat16", "float8_e4m3", "float8_e5m2"};
  return kNames[dtype];
}

std::string name_of(symm_op op) {
  static const char* const kNames[] = {"sum", "prod", "max", "min", "avg"};
  return kNames[op];
}

uint64_t mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

void fill(void* out, size_t count, symm_dtype dtype, uint64_t seed, int rank) {
  const uint64_t place_seed = mix(seed);
  const uint64_t rank_seed = mix(place_seed + static_cast<uint64_t>(rank) + 1);
  const Format* format = small_format(dtype);
  const bool floating = format != nullptr || dtype == SYMM_FLOAT32 || dtype == SYMM_FLOAT64;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t bits = mix(rank_seed + i);
    if (!floating || mix(place_seed + i) % 16 == 0) {
      std::memcpy(static_cast<std::byte*>(out) + i * size_of(dtype), &bits, size_of(dtype));
      continue;
    }
    // +-1.f x 2^-3..2^4, put together as a float64's bits.
    const uint64_t exponent = 1023 - 3 + (bits & 7);
    const double value = std::bit_cast<double>((bits & 8) << 60 | exponent << 52 | bits >> 12);
    if (format != nullptr) {
      store_small(out, i, dtype, format->encode(value));
    } else if (dtype == SYMM_FLOAT32) {
      store(out, i, static_cast<float>(value));
    } else {
      store(out, i, value);
    }
  }
}

std::vector<std::byte> reference(const std::vector<const void*>& inputs, size_t count,
                                 symm_dtype dtype, symm_op op) {
  std::vector<std::byte> result(count * size_of(dtype));
  void* out = result.data();
  if (inputs.size() == 1) {  // nothing to accumulate or round
    if (count != 0) std::memcpy(out, inputs[0], result.size());
    return result;
  }
  switch (dtype) {
    case SYMM_INT8:
      reference_of<int8_t>(inputs, count, op, out);
      break;
    case SYMM_UINT8:
      reference_of<uint8_t>(inputs, count, op, out);
      break;
    case SYMM_INT32:
      reference_of<int32_t>(inputs, count, op, out);
      break;
    case SYMM_UINT32:
      reference_of<uint32_t>(inputs, count, op, out);
      break;
    case SYMM_INT64:
      reference_of<int64_t>(inputs, count, op, out);
      break;
    case SYMM_UINT64:
      reference_of<uint64_t>(inputs, count, op, out);
      break;
    case SYMM_FLOAT32:
      reference_of<float>(inputs, count, op, out);
      break;
    case SYMM_FLOAT64:
      reference_of<double>(inputs, count, op, out);
      break;
    default:
      reference_small(inputs, count, dtype, op, out);
  }
  return result;
}

size_t first_difference(const void* got, const void* expected, size_t count, symm_dtype dtype) {
  const size_t size = size_of(dtype);
  if (count == 0 || std::memcmp(got, expected, count * size) == 0) return SIZE_MAX;
  for (size_t i = 0; i < count; ++i) {
    const bool same = std::memcmp(static_cast<const std::byte*>(got) + i * size,
                                  static_cast<const std::byte*>(expected) + i * size, size) == 0;
    const bool both_nan =
        std::isnan(float_value(got, i, dtype)) && std::isnan(float_value(expected, i, dtype));
    if (!same && !both_nan) return i;
  }
  return SIZE_MAX;
}

std::string element_text(const void* elements, size_t index, symm_dtype dtype) {
  uint64_t bits = 0;
  std::memcpy(&bits, static_cast<const std::byte*>(elements) + index * size_of(dtype),
              size_of(dtype));
  std::ostringstream out;
  out << "0x" << std::hex << bits << " (" << float_value(elements, index, dtype) << ")";
  return out.str();
}

uint64_t hash_bytes(const void* bytes, size_t size, uint64_t seed) {
  uint64_t hash = mix(seed + size);
  for (size_t i = 0; i < size; i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, static_cast<const std::byte*>(bytes) + i, std::min<size_t>(8, size - i));
    hash = mix(hash ^ word);
  }
  return hash;
}

}  // namespace symm_test
