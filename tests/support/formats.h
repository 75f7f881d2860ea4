// Facts about the formats of numbers, for tests that make numbers of their own.
#ifndef SYMM_TESTS_SUPPORT_FORMATS_H_
#define SYMM_TESTS_SUPPORT_FORMATS_H_

#include "capi/symm.h"

namespace symm_test {

// 0 for integers.
inline int mantissa_bits(symm_dtype dtype) {
  switch (dtype) {
    case SYMM_FLOAT16:
      return 10;
    case SYMM_FLOAT32:
      return 23;
    case SYMM_FLOAT64:
      return 52;
    case SYMM_BFLOAT16:
      return 7;
    case SYMM_FLOAT8_E4M3:
      return 3;
    case SYMM_FLOAT8_E5M2:
      return 2;
    default:
      return 0;
  }
}

}  // namespace symm_test

#endif  // SYMM_TESTS_SUPPORT_FORMATS_H_
