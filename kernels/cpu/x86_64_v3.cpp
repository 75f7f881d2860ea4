// The kernels for x86-64-v3: CMakeLists.txt compiles this file with -march=x86-64-v3.
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/loops.h"

namespace symm::cpu {

constinit const Kernels kX86V3Kernels = make_kernels();

}  // namespace symm::cpu
