#include "types.h"

#include <string.h>

/* Both in the order of their numbers in symm.h. */
static const struct {
  const char* name;
  size_t size;
} dtypes[] = {
    {"int8", 1},    {"uint8", 1},    {"int32", 4},       {"uint32", 4},
    {"int64", 8},   {"uint64", 8},   {"float16", 2},     {"float32", 4},
    {"float64", 8}, {"bfloat16", 2}, {"float8_e4m3", 1}, {"float8_e5m2", 1},
};
static const char* const ops[] = {"sum", "prod", "max", "min", "avg"};

enum { dtype_count = sizeof dtypes / sizeof dtypes[0], op_count = sizeof ops / sizeof ops[0] };

symm_dtype dtype_by_name(const char* name) {
  for (int i = 0; i < dtype_count; ++i) {
    if (strcmp(dtypes[i].name, name) == 0) {
      return (symm_dtype)i;
    }
  }
  return SYMM_DTYPE_NONE;
}

const char* dtype_name(symm_dtype dtype) { return dtypes[dtype].name; }
size_t dtype_size(symm_dtype dtype) { return dtypes[dtype].size; }

symm_op op_by_name(const char* name) {
  for (int i = 0; i < op_count; ++i) {
    if (strcmp(ops[i], name) == 0) {
      return (symm_op)i;
    }
  }
  return SYMM_OP_NONE;
}

const char* op_name(symm_op op) { return ops[op]; }
