/* Random inputs that every rank can make for every other, and what the all-reduce of them is,
 * element by element, written plainly: rank order, fp32 for 8- and 16-bit floats, one rounding. */
#ifndef SYMM_PERF_REFERENCE_H
#define SYMM_PERF_REFERENCE_H

#include <stddef.h>
#include <stdint.h>
#include <symm.h>

struct problem {
  symm_dtype dtype;
  symm_op op;
  size_t count;
  int ranks;
  uint64_t seed;
  size_t period; /* the input repeats after so many elements; 0: never */
  int tame;      /* integers are so small that no result overflows */
};

/* Elements first .. first + count - 1 of a rank's input. Floats are finite, 0.5 <= |x| < 2 or a
 * zero of either sign; integers take any value unless they are tame. */
void reference_input(const struct problem* problem, int rank, size_t first, size_t count,
                     void* elements);

/* The same elements of the result. */
void reference_result(const struct problem* problem, size_t first, size_t count, void* elements);

/* Elements of `got` that are not `want`. With tolerance 0: bit for bit, but for NaN. Otherwise of
 * float32 and float64: |got - want| > tolerance x max(1, |want|). */
size_t reference_compare(symm_dtype dtype, const void* got, const void* want, size_t count,
                         double tolerance);

#endif
