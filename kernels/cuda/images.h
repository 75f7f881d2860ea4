// The compiled kernels inside the library: fatbins, each for cuModuleLoadData.
#ifndef SYMM_KERNELS_CUDA_IMAGES_H_
#define SYMM_KERNELS_CUDA_IMAGES_H_

#include <cstddef>

namespace symm::cuda {

struct Image {
  const unsigned char* data;  // aligned to 64 bytes
  size_t bytes;
};
struct Images {
  const Image* images;
  int count;  // 0 in a build without a CUDA compiler
};
Images images();

}  // namespace symm::cuda

#endif  // SYMM_KERNELS_CUDA_IMAGES_H_
