// Element types and operations: sizes, names, and which numbers are known.
#ifndef SYMM_CORE_TYPES_H_
#define SYMM_CORE_TYPES_H_

#include <cstddef>
#include <string>

#include "capi/symm.h"

namespace symm {

// Bytes of one element; 0 for a number this library does not know.
size_t dtype_size(symm_dtype dtype);
// "float32", as NumPy and torch write it; "dtype 77" for a number this library does not know.
std::string dtype_name(symm_dtype dtype);

bool op_known(symm_op op);
// "sum"; "op 77" for a number this library does not know.
std::string op_name(symm_op op);

constexpr int kDtypeCount = 12;  // SYMM_INT8..SYMM_FLOAT8_E5M2 are 0..11
constexpr int kOpCount = 5;      // SYMM_SUM..SYMM_AVG are 0..4

}  // namespace symm

#endif  // SYMM_CORE_TYPES_H_
