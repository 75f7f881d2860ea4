#define _POSIX_C_SOURCE 200809L

#include "reference.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "types.h"

/* ---- Floats of every size ---- */

struct float_format {
  int mantissa_bits;
  int bias;
  uint32_t most;     /* the largest finite number */
  uint32_t overflow; /* what larger ones become: infinity, or `most` where they saturate */
  uint32_t infinity; /* 0: there is none */
  uint32_t nan;
};

static const struct float_format half_format = {10, 15, 0x7bff, 0x7c00, 0x7c00, 0x7e00};
static const struct float_format e4m3_format = {3, 7, 0x7e, 0x7e, 0, 0x7f};
static const struct float_format e5m2_format = {2, 15, 0x7b, 0x7b, 0x7c, 0x7f};

static uint32_t float_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static float bits_float(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* Rounds to nearest even. Returns the code without its sign. */
static uint32_t encode_magnitude(const struct float_format* format, uint32_t bits) {
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) {
    return format->nan;
  }
  const int exponent = (int)(magnitude >> 23) - 127;
  const int least_normal = 1 - format->bias;
  const uint32_t significand = (magnitude & 0x7fffff) | 0x800000;
  const int denormal = exponent < least_normal;
  const int shift = 23 - format->mantissa_bits + (denormal ? least_normal - exponent : 0);
  if (shift > 24) {
    return 0; /* below half of the least number; fp32's own denormals are too */
  }
  const uint32_t half = (uint32_t)1 << (shift - 1);
  const uint32_t odd = (significand >> shift) & 1;
  const uint32_t rounded = (significand + half - 1 + odd) >> shift;
  /* A normal number's significand has the leading bit, which counts as one exponent. */
  const uint32_t base =
      denormal ? 0 : (uint32_t)(exponent + format->bias - 1) << format->mantissa_bits;
  return base + rounded > format->most ? format->overflow : base + rounded;
}

static float decode(const struct float_format* format, int bits, uint32_t code) {
  const uint32_t sign = code >> (bits - 1);
  const uint32_t magnitude = code & (((uint32_t)1 << (bits - 1)) - 1);
  const uint32_t mantissa = magnitude & (((uint32_t)1 << format->mantissa_bits) - 1);
  const int exponent = (int)(magnitude >> format->mantissa_bits);
  float value;
  if (magnitude > format->most) {
    value = magnitude == format->infinity ? INFINITY : NAN;
  } else if (exponent == 0) {
    value = ldexpf((float)mantissa, 1 - format->bias - format->mantissa_bits);
  } else {
    value = ldexpf((float)(mantissa | ((uint32_t)1 << format->mantissa_bits)),
                   exponent - format->bias - format->mantissa_bits);
  }
  return sign ? -value : value;
}

/* Decoding by table: a run checks gigabytes. */
static float half_table[65536];
static float e4m3_table[256];
static float e5m2_table[256];
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static void fill_tables(void) {
  for (uint32_t i = 0; i < 65536; ++i) {
    half_table[i] = decode(&half_format, 16, i);
  }
  for (uint32_t i = 0; i < 256; ++i) {
    e4m3_table[i] = decode(&e4m3_format, 8, i);
    e5m2_table[i] = decode(&e5m2_format, 8, i);
  }
}

/* The value of any float but float64. */
static float to_float(symm_dtype dtype, uint64_t bits) {
  switch (dtype) {
    case SYMM_FLOAT16:
      return half_table[bits];
    case SYMM_BFLOAT16:
      return bits_float((uint32_t)bits << 16);
    case SYMM_FLOAT8_E4M3:
      return e4m3_table[bits];
    case SYMM_FLOAT8_E5M2:
      return e5m2_table[bits];
    default:
      return bits_float((uint32_t)bits);
  }
}

static uint64_t from_float(symm_dtype dtype, float value) {
  const uint32_t bits = float_bits(value);
  switch (dtype) {
    case SYMM_FLOAT16:
      return encode_magnitude(&half_format, bits) | (bits >> 31 << 15);
    case SYMM_BFLOAT16:
      return isnan(value) ? (bits >> 16) | 0x40 : (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    case SYMM_FLOAT8_E4M3:
      return encode_magnitude(&e4m3_format, bits) | (bits >> 31 << 7);
    case SYMM_FLOAT8_E5M2:
      return encode_magnitude(&e5m2_format, bits) | (bits >> 31 << 7);
    default:
      return bits;
  }
}

/* ---- Inputs ---- */

/* splitmix64: any two different numbers give unrelated ones. */
static uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

/* Where a rank's numbers start: one step of mix, so that ranks' streams do not overlap by simple
 * offsets. */
static uint64_t stream_of(const struct problem* problem, int rank) {
  return mix(problem->seed ^ mix((uint64_t)rank + 1));
}

/* A float with `mantissa` bits of mantissa below the exponent `bias`, made of random bits. */
static uint64_t random_float(uint64_t random, unsigned bits, unsigned mantissa, uint64_t bias) {
  const uint64_t sign = (random & 1) << (bits - 1);
  if ((random >> 1 & 63) == 0) {
    return sign; /* +-0 */
  }
  const uint64_t exponent = bias - (random >> 7 & 1);
  return sign | exponent << mantissa | (random >> 8 & (((uint64_t)1 << mantissa) - 1));
}

/* Sums and products of as many ranks as there are fit the type. */
static uint64_t tame_integer(const struct problem* problem, uint64_t random) {
  const symm_dtype dtype = problem->dtype;
  const int is_signed = dtype == SYMM_INT8 || dtype == SYMM_INT32 || dtype == SYMM_INT64;
  const uint64_t most = ~(uint64_t)0 >> (64 - 8 * dtype_size(dtype) + (is_signed ? 1 : 0));
  return problem->op == SYMM_PROD ? random & 1 : random % (most / (uint64_t)problem->ranks + 1);
}

static uint64_t element_bits(const struct problem* problem, uint64_t random) {
  const symm_dtype dtype = problem->dtype;
  switch (dtype) {
    case SYMM_FLOAT16:
      return random_float(random, 16, 10, 15);
    case SYMM_BFLOAT16:
      return random_float(random, 16, 7, 127);
    case SYMM_FLOAT8_E4M3:
      return random_float(random, 8, 3, 7);
    case SYMM_FLOAT8_E5M2:
      return random_float(random, 8, 2, 15);
    case SYMM_FLOAT32:
      return random_float(random, 32, 23, 127);
    case SYMM_FLOAT64:
      return random_float(random, 64, 52, 1023);
    default:
      return problem->tame ? tame_integer(problem, random) : random >> (64 - 8 * dtype_size(dtype));
  }
}

static uint64_t load(const void* elements, size_t size, size_t index) {
  const unsigned char* at = (const unsigned char*)elements + index * size;
  uint8_t u8;
  uint16_t u16;
  uint32_t u32;
  uint64_t u64;
  switch (size) {
    case 1:
      memcpy(&u8, at, 1);
      return u8;
    case 2:
      memcpy(&u16, at, 2);
      return u16;
    case 4:
      memcpy(&u32, at, 4);
      return u32;
    default:
      memcpy(&u64, at, 8);
      return u64;
  }
}

static void store(void* elements, size_t size, size_t index, uint64_t bits) {
  unsigned char* at = (unsigned char*)elements + index * size;
  const uint8_t u8 = (uint8_t)bits;
  const uint16_t u16 = (uint16_t)bits;
  const uint32_t u32 = (uint32_t)bits;
  switch (size) {
    case 1:
      memcpy(at, &u8, 1);
      break;
    case 2:
      memcpy(at, &u16, 2);
      break;
    case 4:
      memcpy(at, &u32, 4);
      break;
    default:
      memcpy(at, &bits, 8);
      break;
  }
}

static uint64_t input_bits(const struct problem* problem, uint64_t stream, size_t index) {
  const size_t place = problem->period == 0 ? index : index % problem->period;
  return element_bits(problem, mix(stream + place));
}

void reference_input(const struct problem* problem, int rank, size_t first, size_t count,
                     void* elements) {
  const uint64_t stream = stream_of(problem, rank);
  const size_t size = dtype_size(problem->dtype);
  for (size_t i = 0; i < count; ++i) {
    store(elements, size, i, input_bits(problem, stream, first + i));
  }
}

/* ---- Results ---- */

static int is_float(symm_dtype dtype) { return dtype >= SYMM_FLOAT16; }

/* MAX and MIN: NaN wins, and -0 is less than +0. */
static double extreme(symm_op op, double a, double b) {
  if (isnan(a) || isnan(b)) {
    return isnan(a) ? a : b;
  }
  const int a_less = a < b || (a == b && signbit(a));
  return (op == SYMM_MAX) == a_less ? b : a;
}

static uint64_t reduce_float(const struct problem* problem, const uint64_t* streams, size_t index) {
  float sum = to_float(problem->dtype, input_bits(problem, streams[0], index));
  for (int rank = 1; rank < problem->ranks; ++rank) {
    const float operand = to_float(problem->dtype, input_bits(problem, streams[rank], index));
    switch (problem->op) {
      case SYMM_PROD:
        sum *= operand;
        break;
      case SYMM_MAX:
      case SYMM_MIN:
        sum = (float)extreme(problem->op, sum, operand);
        break;
      default:
        sum += operand;
        break;
    }
  }
  if (problem->op == SYMM_AVG) {
    sum /= (float)problem->ranks;
  }
  return from_float(problem->dtype, sum);
}

static double bits_double(uint64_t bits) {
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static uint64_t reduce_double(const struct problem* problem, const uint64_t* streams,
                              size_t index) {
  double sum = bits_double(input_bits(problem, streams[0], index));
  for (int rank = 1; rank < problem->ranks; ++rank) {
    const double operand = bits_double(input_bits(problem, streams[rank], index));
    switch (problem->op) {
      case SYMM_PROD:
        sum *= operand;
        break;
      case SYMM_MAX:
      case SYMM_MIN:
        sum = extreme(problem->op, sum, operand);
        break;
      default:
        sum += operand;
        break;
    }
  }
  if (problem->op == SYMM_AVG) {
    sum /= (double)problem->ranks;
  }
  uint64_t bits;
  memcpy(&bits, &sum, sizeof bits);
  return bits;
}

/* The low bits of `value` as the type has them, extended to 64 with their sign or zeros. */
static uint64_t wrap(symm_dtype dtype, uint64_t value) {
  switch (dtype) {
    case SYMM_INT8:
      return (uint64_t)(int64_t)(int8_t)(uint8_t)value;
    case SYMM_UINT8:
      return (uint8_t)value;
    case SYMM_INT32:
      return (uint64_t)(int64_t)(int32_t)(uint32_t)value;
    case SYMM_UINT32:
      return (uint32_t)value;
    default:
      return value;
  }
}

static uint64_t reduce_integer(const struct problem* problem, const uint64_t* streams,
                               size_t index) {
  const symm_dtype dtype = problem->dtype;
  const int is_signed = dtype == SYMM_INT8 || dtype == SYMM_INT32 || dtype == SYMM_INT64;
  uint64_t sum = wrap(dtype, input_bits(problem, streams[0], index));
  for (int rank = 1; rank < problem->ranks; ++rank) {
    const uint64_t operand = wrap(dtype, input_bits(problem, streams[rank], index));
    const int less = is_signed ? (int64_t)sum < (int64_t)operand : sum < operand;
    switch (problem->op) {
      case SYMM_PROD:
        sum = wrap(dtype, sum * operand);
        break;
      case SYMM_MAX:
        sum = less ? operand : sum;
        break;
      case SYMM_MIN:
        sum = less ? sum : operand;
        break;
      default:
        sum = wrap(dtype, sum + operand);
        break;
    }
  }
  if (problem->op == SYMM_AVG) {
    sum = is_signed ? (uint64_t)((int64_t)sum / problem->ranks) : sum / (uint64_t)problem->ranks;
  }
  return sum;
}

void reference_result(const struct problem* problem, size_t first, size_t count, void* elements) {
  pthread_once(&tables_once, fill_tables);
  uint64_t streams[PERF_MAX_RANKS];
  for (int rank = 0; rank < problem->ranks; ++rank) {
    streams[rank] = stream_of(problem, rank);
  }
  const size_t size = dtype_size(problem->dtype);
  for (size_t i = 0; i < count; ++i) {
    const size_t index = first + i;
    const uint64_t bits = !is_float(problem->dtype)        ? reduce_integer(problem, streams, index)
                          : problem->dtype == SYMM_FLOAT64 ? reduce_double(problem, streams, index)
                                                           : reduce_float(problem, streams, index);
    store(elements, size, i, bits);
  }
}

/* ---- Comparison ---- */

static double value_of(symm_dtype dtype, uint64_t bits) {
  return dtype == SYMM_FLOAT64 ? bits_double(bits) : to_float(dtype, bits);
}

static int equal(symm_dtype dtype, uint64_t got, uint64_t want, double tolerance) {
  if (got == want) {
    return 1;
  }
  if (!is_float(dtype)) {
    return 0;
  }
  const double got_value = value_of(dtype, got);
  const double want_value = value_of(dtype, want);
  if (isnan(want_value)) {
    return isnan(got_value);
  }
  return tolerance > 0 && fabs(got_value - want_value) <= tolerance * fmax(1, fabs(want_value));
}

size_t reference_compare(symm_dtype dtype, const void* got, const void* want, size_t count,
                         double tolerance) {
  const size_t size = dtype_size(dtype);
  if (memcmp(got, want, count * size) == 0) {
    return 0;
  }
  pthread_once(&tables_once, fill_tables);
  size_t wrong = 0;
  for (size_t i = 0; i < count; ++i) {
    wrong += !equal(dtype, load(got, size, i), load(want, size, i), tolerance);
  }
  return wrong;
}
