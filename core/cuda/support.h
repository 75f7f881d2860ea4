// What the rest of the library asks of CUDA support, whether this build has it or not.
#ifndef SYMM_CORE_CUDA_SUPPORT_H_
#define SYMM_CORE_CUDA_SUPPORT_H_

#include <cstdint>
#include <memory>

#include "core/backend.h"

namespace symm::cuda {

// The ordinal that `device` (symm_device, not SYMM_CPU) names in this process and thread. Throws
// UNSUPPORTED where there is no GPU, driver or support in this build, saying which and what to do;
// INVALID_ARGUMENT where it names none of the GPUs there are.
int32_t resolve_device(int32_t device);

std::unique_ptr<Backend> make_backend(Comm& comm);

// The object "cuda" of symm_report, about this process. Starting CUDA takes a while and denies it
// to forked children: unless `may_start`, only a driver that is in use already is asked.
void describe(JsonWriter& json, bool may_start);

}  // namespace symm::cuda

#endif  // SYMM_CORE_CUDA_SUPPORT_H_
