// What symm_report says of CUDA in this process.
#include <algorithm>
#include <string>
#include <vector>

#include "core/cuda/device.h"
#include "core/cuda/support.h"
#include "core/json.h"

namespace symm::cuda {
namespace {

struct Gpu {
  std::string name;
  std::string uuid;
  std::string capability;
  int multiprocessors = 0;
  bool integrated = false;
  std::vector<int> reaches;  // ordinals
};

Gpu look_at(int ordinal, int count) {
  Gpu gpu;
  CUdevice device = 0;
  char name[128] = "";
  SYMM_CUDA_CHECK(cuDeviceGet, (&device, ordinal));
  SYMM_CUDA_CHECK(cuDeviceGetName, (name, sizeof name - 1, device));
  const auto attribute = [&](CUdevice_attribute which) {
    int value = 0;
    SYMM_CUDA_CHECK(cuDeviceGetAttribute, (&value, which, device));
    return value;
  };
  gpu.name = name;
  gpu.uuid = uuid_text(uuid_of(device));
  gpu.capability = text(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), '.',
                        attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  gpu.multiprocessors = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  gpu.integrated = attribute(CU_DEVICE_ATTRIBUTE_INTEGRATED) != 0;
  for (int other = 0; other < count; ++other) {
    CUdevice peer = 0;
    int can = 0;
    SYMM_CUDA_CHECK(cuDeviceGet, (&peer, other));
    if (other != ordinal) SYMM_CUDA_CHECK(cuDeviceCanAccessPeer, (&can, device, peer));
    if (can != 0) gpu.reaches.push_back(other);
  }
  return gpu;
}

void write(JsonWriter& json, int ordinal, const Gpu& gpu) {
  json.begin_object();
  json.key("ordinal").number(ordinal);
  json.key("name").string(gpu.name);
  json.key("uuid").string(gpu.uuid);
  json.key("compute_capability").string(gpu.capability);
  json.key("multiprocessors").number(gpu.multiprocessors);
  json.key("integrated").boolean(gpu.integrated);
  json.key("peer_access").begin_array();
  for (const int other : gpu.reaches) json.number(other);
  json.end_array();
  json.end_object();
}

}  // namespace

void describe(JsonWriter& json, bool may_start) {
  int version = 0;
  std::vector<Gpu> gpus;
  std::string why_not;
  try {
    if (!may_start && !is_driver_started()) {
      throw Error(SYMM_UNSUPPORTED,
                  "not looked for, as this process does not use it; symm_report without a "
                  "communicator does");
    }
    int count = 0;
    SYMM_CUDA_CHECK(cuDriverGetVersion, (&version));
    SYMM_CUDA_CHECK(cuDeviceGetCount, (&count));
    for (int ordinal = 0; ordinal < count; ++ordinal) gpus.push_back(look_at(ordinal, count));
    if (count == 0) why_not = "no GPU is visible to this process";
    if (kernels().count == 0) {
      why_not = "this build of symm has no GPU kernels: no CUDA compiler was found";
    }
  } catch (const Error& e) {
    why_not = e.what();
    gpus.clear();
  }
  json.begin_object();
  json.key("available").boolean(why_not.empty());
  if (!why_not.empty()) json.key("reason").string(why_not);
  if (version != 0) json.key("version").string(text(version / 1000, '.', version % 1000 / 10));
  json.key("compiled_version").string(text(CUDA_VERSION / 1000, '.', CUDA_VERSION % 1000 / 10));
  json.key("gpu_count").number(gpus.size());
  json.key("peer_access_everywhere")
      .boolean(std::all_of(gpus.begin(), gpus.end(),
                           [&](const Gpu& gpu) { return gpu.reaches.size() + 1 == gpus.size(); }));
  json.key("gpus").begin_array();
  for (size_t i = 0; i < gpus.size(); ++i) write(json, static_cast<int>(i), gpus[i]);
  json.end_array();
  json.end_object();
}

}  // namespace symm::cuda
