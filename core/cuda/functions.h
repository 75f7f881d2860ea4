// The kernels of this build, loaded into a context.
#ifndef SYMM_CORE_CUDA_FUNCTIONS_H_
#define SYMM_CORE_CUDA_FUNCTIONS_H_

#include <vector>

#include "core/cuda/context.h"

namespace symm::cuda {

class Functions {
 public:
  // All that a communicator of that size may launch: nothing is loaded later, when a capture or a
  // waiting kernel would forbid it. The context is current.
  explicit Functions(int size);
  CUfunction operator[](int kernel) const { return functions_[static_cast<size_t>(kernel)]; }

 private:
  std::vector<CUfunction> functions_;  // by Launch::kernel; null where not needed
};

}  // namespace symm::cuda

#endif  // SYMM_CORE_CUDA_FUNCTIONS_H_
