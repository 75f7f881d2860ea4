/* Names and sizes of symm's element types and operations. */
#ifndef SYMM_PERF_TYPES_H
#define SYMM_PERF_TYPES_H

#include <stddef.h>
#include <symm.h>

enum { PERF_MAX_RANKS = 1024 };

symm_dtype dtype_by_name(const char* name); /* SYMM_DTYPE_NONE for an unknown one */
const char* dtype_name(symm_dtype dtype);
size_t dtype_size(symm_dtype dtype);

symm_op op_by_name(const char* name); /* SYMM_OP_NONE for an unknown one */
const char* op_name(symm_op op);

#endif
