#include "core/cuda/functions.h"

#include <map>
#include <mutex>

#include "core/cuda/plan.h"
#include "kernels/cuda/images.h"

namespace symm::cuda {
namespace {

// Modules by context and image. They stay as long as the context: unloading one waits for the whole
// GPU, and the next communicator wants it again. Contexts have numbers that are never used twice.
constinit std::mutex mutex;
std::map<std::pair<unsigned long long, int>, CUmodule>& modules() {
  static auto* instance = new std::map<std::pair<unsigned long long, int>, CUmodule>;
  return *instance;
}

CUmodule load(unsigned long long context, int image) {
  std::lock_guard lock(mutex);
  CUmodule& module = modules()[{context, image}];
  if (module == nullptr) {
    check(driver().cuModuleLoadData(&module, images().images[image].data), "cuModuleLoadData",
          "the kernels of symm");
  }
  return module;
}

}  // namespace

Functions::Functions(int size) {
  unsigned long long context = 0;
  SYMM_CUDA_CHECK(cuCtxGetId, (nullptr, &context));
  const Kernels all = kernels();
  if (all.count == 0) {
    throw Error(SYMM_UNSUPPORTED,
                "this build of symm has no GPU kernels: no CUDA compiler was found when it was "
                "built (SYMM_CUDA=ON makes that an error)");
  }
  functions_.resize(static_cast<size_t>(all.count), nullptr);
  for (int i = 0; i < all.count; ++i) {
    const Kernel& kernel = all.kernels[i];
    if (!needed(kernel, size)) continue;
    const CUmodule module = load(context, kernel.image);
    CUfunction function = nullptr;
    check(driver().cuModuleGetFunction(&function, module, kernel.name), "cuModuleGetFunction",
          kernel.name);
    // Asking for an attribute loads the kernel now, whatever CUDA_MODULE_LOADING says.
    int registers = 0;
    check(driver().cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function),
          "cuFuncGetAttribute", kernel.name);
    functions_[static_cast<size_t>(i)] = function;
  }
}

}  // namespace symm::cuda
