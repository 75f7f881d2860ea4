#include "core/cuda/driver.h"

#include <dlfcn.h>

#include <atomic>
#include <mutex>

namespace symm::cuda {
namespace {

// What the fatbins and the entry points need: the major version that they were compiled with.
constexpr int kLeastVersion = CUDA_VERSION / 1000 * 1000;

std::string version_text(int version) { return text(version / 1000, '.', version % 1000 / 10); }

// Set once, after the table is complete; null until then.
std::atomic<const Driver*> current{nullptr};
constinit std::mutex loading;

#define SYMM_CUDA_TEXT_OF(name) #name
#define SYMM_CUDA_TEXT(name) SYMM_CUDA_TEXT_OF(name)

void find_entry_points(void* library, Driver* table) {
#define SYMM_CUDA_FIND(name)                                                                     \
  table->name = reinterpret_cast<decltype(table->name)>(dlsym(library, SYMM_CUDA_TEXT(name)));   \
  if (table->name == nullptr) {                                                                  \
    throw Error(SYMM_UNSUPPORTED,                                                                \
                text("libcuda.so.1 has no " SYMM_CUDA_TEXT(name) "; install a driver for CUDA ", \
                     version_text(kLeastVersion), " or newer"));                                 \
  }
  SYMM_CUDA_ENTRY_POINTS(SYMM_CUDA_FIND)
#undef SYMM_CUDA_FIND
}

const Driver* load() {
  // Never closed: the driver's threads and exit handlers stay.
  static void* library = nullptr;
  static Driver table;
  if (library == nullptr) library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    throw Error(SYMM_UNSUPPORTED,
                text("there is no NVIDIA driver on this machine (", why == nullptr ? "" : why,
                     "); install one, or use SYMM_CPU"));
  }
  // An older driver lacks newer entry points: its version is the better message.
  const auto get_version =
      reinterpret_cast<decltype(&::cuDriverGetVersion)>(dlsym(library, "cuDriverGetVersion"));
  int version = 0;
  if (get_version != nullptr && get_version(&version) == CUDA_SUCCESS && version < kLeastVersion) {
    throw Error(SYMM_UNSUPPORTED, text("the NVIDIA driver is for CUDA ", version_text(version),
                                       "; this build of symm needs one for CUDA ",
                                       version_text(kLeastVersion), " or newer"));
  }
  find_entry_points(library, &table);
  return &table;
}

void start(const Driver& table) {
  const CUresult result = table.cuInit(0);
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  table.cuGetErrorName(result, &name);
  const std::string what = text("cuInit: ", name == nullptr ? "unknown error" : name);
  if (result == CUDA_ERROR_NOT_INITIALIZED) {
    throw Error(SYMM_UNSUPPORTED, what +
                                      "; CUDA cannot be used in a child of a process that used "
                                      "it: start the child by exec (spawn) instead of fork");
  }
  throw Error(SYMM_UNSUPPORTED, what +
                                    "; is there a GPU, is its driver loaded (nvidia-smi), and does "
                                    "CUDA_VISIBLE_DEVICES leave one visible?");
}

}  // namespace

const Driver& driver() {
  // Acquire: the table's entries were written before the pointer.
  if (const Driver* table = current.load(std::memory_order_acquire)) return *table;
  std::lock_guard lock(loading);
  if (const Driver* table = current.load(std::memory_order_acquire)) return *table;
  const Driver* table = load();
  start(*table);
  current.store(table, std::memory_order_release);
  return *table;
}

bool is_driver_started() { return current.load(std::memory_order_acquire) != nullptr; }

void use_driver(const Driver* fake) { current.store(fake, std::memory_order_release); }

std::string error_text(CUresult result, const char* function) {
  const Driver& table = driver();
  const char* name = nullptr;
  const char* what = nullptr;
  if (table.cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr) {
    return text(function, ": CUDA error ", static_cast<int>(result));
  }
  if (table.cuGetErrorString(result, &what) != CUDA_SUCCESS || what == nullptr) what = "";
  return text(function, ": ", name, " (", what, ')');
}

bool is_capture_error(CUresult result) {
  return result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
         result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

void check(CUresult result, const char* function, const std::string& about) {
  if (result == CUDA_SUCCESS) return;
  symm_status status = SYMM_CUDA;
  if (result == CUDA_ERROR_OUT_OF_MEMORY) status = SYMM_OUT_OF_MEMORY;
  if (result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_NOT_PERMITTED) {
    status = SYMM_UNSUPPORTED;
  }
  // What a caller's capture forbids, or has broken, changes nothing here.
  if (is_capture_error(result)) status = SYMM_INVALID_ARGUMENT;
  throw Error(status, text(about, about.empty() ? "" : ": ", error_text(result, function)));
}

}  // namespace symm::cuda
