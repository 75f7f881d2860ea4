// A build without CUDA support (SYMM_CUDA=OFF, or no CUDA compiler found).
#include "core/cuda/support.h"
#include "core/error.h"
#include "core/json.h"

namespace symm::cuda {

int32_t resolve_device(int32_t device) {
  throw Error(SYMM_UNSUPPORTED, text("device ", device,
                                     " is a GPU, and this build of symm has no CUDA support; use "
                                     "SYMM_CPU (",
                                     static_cast<int>(SYMM_CPU), ")"));
}

std::unique_ptr<Backend> make_backend(Comm&) {
  throw Error(SYMM_INTERNAL, "a communicator of GPUs in a build without CUDA support");
}

void describe(JsonWriter& json, bool) {
  json.begin_object();
  json.key("available").boolean(false);
  json.key("reason").string("this build of symm has no support for it");
  json.end_object();
}

}  // namespace symm::cuda
