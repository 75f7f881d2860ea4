// What one instruction level gives to the dispatcher in reduce.cpp.
//
// A level's file (x86_64_v3.cpp and its like) is compiled with that level's -march flag, so nothing
// with external linkage may come out of it but its table: the linker keeps one of several copies
// of an inline function or template, and if it kept the AVX2 one, the baseline would run AVX2.
#ifndef SYMM_KERNELS_CPU_KERNELS_H_
#define SYMM_KERNELS_CPU_KERNELS_H_

#include <cstddef>

#include "capi/symm.h"
#include "kernels/cpu/reduce.h"

namespace symm::cpu {

using CopyFunction = void (*)(void* out, const void* in, size_t bytes, Store store);

struct Kernels {
  static constexpr int kDtypes = SYMM_FLOAT8_E5M2 + 1;
  static constexpr int kOps = SYMM_AVG + 1;

  ReduceFunction reduce[kDtypes][kOps];
  CopyFunction copy;
};

// Constants, never the result of start-up code: that would run before the CPU has been asked.
extern const Kernels kBaselineKernels;
extern const Kernels kX86V2Kernels;
extern const Kernels kX86V3Kernels;
extern const Kernels kX86V4Kernels;

}  // namespace symm::cpu

#endif  // SYMM_KERNELS_CPU_KERNELS_H_
