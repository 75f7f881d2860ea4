// The kernels for x86-64-v2: CMakeLists.txt compiles this file with -march=x86-64-v2.
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/loops.h"

namespace symm::cpu {

constinit const Kernels kX86V2Kernels = make_kernels();

}  // namespace symm::cpu
