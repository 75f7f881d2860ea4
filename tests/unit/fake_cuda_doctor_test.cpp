// What symm-doctor reads is what symm_report writes: of fake GPUs, by the real one.
#include <cstring>
#include <string>
#include <vector>

#include "core/cuda/plan.h"
#include "tests/unit/fake_cuda_ranks.h"

extern "C" {
#include "examples/doctor/check.h"
}

namespace symm::cuda {
namespace {

checks judge() {
  size_t needed = 0;
  EXPECT_EQ(SYMM_OK, symm_report(nullptr, nullptr, 0, &needed));
  std::vector<char> report(needed + 256);
  EXPECT_EQ(SYMM_OK, symm_report(nullptr, report.data(), report.size(), &needed));
  checks result = {};
  const gpu_signs signs = {nullptr, 0, 0};
  check_gpus(&result, report.data(), &signs);
  return result;
}

const ::check* find(const checks& all, const char* name) {
  for (int i = 0; i < all.count; ++i) {
    if (strcmp(all.list[i].name, name) == 0) return &all.list[i];
  }
  return nullptr;
}

// A build without a CUDA compiler has no kernels, and its report no GPUs that could be used.
bool has_kernels() { return kernels().count > 0; }

TEST(CudaDoctor, GpusInOrderAreSeen) {
  if (!has_kernels()) GTEST_SKIP() << "this build has no GPU kernels";
  FakeCuda fake(3);
  const checks all = judge();
  ASSERT_NE(find(all, "CUDA"), nullptr);
  EXPECT_EQ(find(all, "CUDA")->status, CHECK_OK);
  ASSERT_NE(find(all, "peer access"), nullptr);
  EXPECT_EQ(find(all, "peer access")->status, CHECK_OK) << find(all, "peer access")->detail;
  EXPECT_NE(strstr(find(all, "peer access")->detail, "each GPU"), nullptr);
}

TEST(CudaDoctor, GpusWithoutPeerAccessAreListedByPair) {
  if (!has_kernels()) GTEST_SKIP() << "this build has no GPU kernels";
  FakeCuda fake(3);
  fake.set_peer_access(false);
  const checks all = judge();
  ASSERT_NE(find(all, "peer access"), nullptr);
  EXPECT_EQ(find(all, "peer access")->status, CHECK_WARN);
  EXPECT_NE(strstr(find(all, "peer access")->detail, "0 and 1, 0 and 2, 1 and 2"), nullptr);
}

TEST(CudaDoctor, IntegratedGpusAreNamed) {
  if (!has_kernels()) GTEST_SKIP() << "this build has no GPU kernels";
  FakeCuda fake(2);
  fake.set_integrated(1, true);
  const checks all = judge();
  ASSERT_NE(find(all, "integrated GPUs"), nullptr);
  EXPECT_EQ(find(all, "integrated GPUs")->status, CHECK_WARN);
  EXPECT_NE(strstr(find(all, "integrated GPUs")->detail, "GPU 1 ("), nullptr);
}

TEST(CudaDoctor, NoGpuAtAllIsNoIllness) {
  if (!has_kernels()) GTEST_SKIP() << "this build has no GPU kernels";
  FakeCuda fake(0);
  const checks all = judge();
  ASSERT_NE(find(all, "CUDA"), nullptr);
  EXPECT_EQ(find(all, "CUDA")->status, CHECK_NOTE) << find(all, "CUDA")->detail;
  EXPECT_NE(strstr(find(all, "CUDA")->detail, "no GPU is visible"), nullptr);
}

}  // namespace
}  // namespace symm::cuda
