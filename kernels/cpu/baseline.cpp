// The kernels that every CPU of the build's architecture runs: NEON on aarch64, SSE2 on x86-64.
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/loops.h"

namespace symm::cpu {

constinit const Kernels kBaselineKernels = make_kernels();

}  // namespace symm::cpu
