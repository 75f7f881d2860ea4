#include "core/types.h"

#include "core/error.h"

namespace symm {
namespace {

struct DtypeRow {
  size_t size;
  const char* name;
};

constexpr DtypeRow kDtypes[kDtypeCount] = {
    {1, "int8"},    {1, "uint8"},    {4, "int32"},       {4, "uint32"},
    {8, "int64"},   {8, "uint64"},   {2, "float16"},     {4, "float32"},
    {8, "float64"}, {2, "bfloat16"}, {1, "float8_e4m3"}, {1, "float8_e5m2"},
};
constexpr const char* kOps[kOpCount] = {"sum", "prod", "max", "min", "avg"};

bool dtype_known(symm_dtype dtype) {
  return static_cast<int>(dtype) >= 0 && static_cast<int>(dtype) < kDtypeCount;
}

}  // namespace

size_t dtype_size(symm_dtype dtype) { return dtype_known(dtype) ? kDtypes[dtype].size : 0; }

std::string dtype_name(symm_dtype dtype) {
  return dtype_known(dtype) ? kDtypes[dtype].name : text("dtype ", static_cast<int>(dtype));
}

bool op_known(symm_op op) { return static_cast<int>(op) >= 0 && static_cast<int>(op) < kOpCount; }

std::string op_name(symm_op op) {
  return op_known(op) ? kOps[op] : text("op ", static_cast<int>(op));
}

}  // namespace symm
