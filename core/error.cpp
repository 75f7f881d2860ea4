#include "core/error.h"

#include <cerrno>
#include <cstring>

namespace symm {

std::string errno_text(int error) {
  char buffer[256];
  // The GNU strerror_r, which may return a static string instead of using the buffer.
  const char* name = strerror_r(error, buffer, sizeof buffer);
  const char* remedy = error == EMFILE   ? "; raise the limit on open files (ulimit -n)"
                       : error == ENFILE ? "; raise the system's limit on open files (fs.file-max)"
                                         : "";
  return text(name, " (errno ", error, ")", remedy);
}

const char* status_name(int32_t status) {
  switch (status) {
    case SYMM_OK:
      return "SYMM_OK";
    case SYMM_INVALID_ARGUMENT:
      return "SYMM_INVALID_ARGUMENT";
    case SYMM_OUT_OF_MEMORY:
      return "SYMM_OUT_OF_MEMORY";
    case SYMM_UNSUPPORTED:
      return "SYMM_UNSUPPORTED";
    case SYMM_SYSTEM:
      return "SYMM_SYSTEM";
    case SYMM_CUDA:
      return "SYMM_CUDA";
    case SYMM_NCCL:
      return "SYMM_NCCL";
    case SYMM_TIMEOUT:
      return "SYMM_TIMEOUT";
    case SYMM_PEER:
      return "SYMM_PEER";
    case SYMM_MISMATCH:
      return "SYMM_MISMATCH";
    case SYMM_ABORTED:
      return "SYMM_ABORTED";
    case SYMM_INTERNAL:
      return "SYMM_INTERNAL";
    default:
      return "SYMM_UNKNOWN";
  }
}

}  // namespace symm
