// Elementwise reductions of N sources on one CPU core: the arithmetic of symm_all_reduce.
//
// Semantics are those of symm_op in symm.h: sources are taken in the order given, 8- and 16-bit
// floats accumulate in fp32 and are rounded once, integers wrap, float8 saturates. Every level
// gives the same bits for the same inputs: nothing is contracted to FMA, and a NaN that is
// computed, not copied, has all bits set. The thread's floating-point controls are the caller's
// care: reading them can take longer than reducing a cache line.
#ifndef SYMM_KERNELS_CPU_REDUCE_H_
#define SYMM_KERNELS_CPU_REDUCE_H_

#include <cstddef>
#include <cstdint>

#include "capi/symm.h"

namespace symm::cpu {

// Instruction levels, in rising order. Ranks of a communicator agree on the lowest of them all.
enum class Level : uint8_t { kBaseline = 0, kX86V2 = 1, kX86V3 = 2, kX86V4 = 3, kNeon = 4 };

// What this CPU and operating system can run.
Level best_level();
const char* level_name(Level level);  // "x86-64-v3"

// How results are stored.
enum class Store : uint8_t {
  kCached,
  kStreaming,  // non-temporal, for outputs beyond the last-level cache; fenced before return
};

// out[i] = op(sources[0][i], ..., sources[n-1][i]) for i < count, 1 <= n; SYMM_AVG divides by n.
// `also`, when not null, gets the same elements (a reduce-scatter's owner writes its own output and
// the place its peer reads in one pass); always stored cached. `out` and `also` may each be equal
// to any source, and otherwise overlap none. Pointers are aligned to the element at least. The
// order of operands never depends on aliasing.
using ReduceFunction = void (*)(void* out, void* also, const void* const* sources, int n,
                                size_t count, Store store);

// Null for an unknown dtype or op or a level that this build lacks; levels above best_level() must
// not be called. n == 1 copies (AVG by 1 included; float8 and 16-bit floats keep their bits).
ReduceFunction reduce_function(Level level, symm_dtype dtype, symm_op op);

// memcpy with a choice of store, at a level of this build; no overlap.
void copy(Level level, void* out, const void* in, size_t bytes, Store store);

}  // namespace symm::cpu

#endif  // SYMM_KERNELS_CPU_REDUCE_H_
