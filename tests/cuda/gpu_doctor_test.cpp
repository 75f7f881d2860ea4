// symm-doctor where there are GPUs: real drivers, and jobs whose ranks differ in them.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/cuda/gpu.h"
#include "tests/support/diagnosis.h"
#include "tests/support/places.h"

namespace symm_test {
namespace {

// A build directory may have been brought here without its examples.
#define NEEDS_DOCTOR() \
  if (doctor().empty()) GTEST_SKIP() << "there is no ../examples/symm-doctor beside this test"

// One symm-doctor a rank, each with CUDA_VISIBLE_DEVICES of its own.
std::vector<Diagnosis> diagnose_job(const std::vector<std::string>& visible_devices) {
  const int port = free_port();
  const int size = static_cast<int>(visible_devices.size());
  std::vector<std::unique_ptr<Program>> programs;
  for (int rank = 0; rank < size; ++rank) {
    Variables variables = but(job_of_two(rank, port), number("WORLD_SIZE", size));
    variables.push_back("CUDA_VISIBLE_DEVICES=" + visible_devices[static_cast<size_t>(rank)]);
    programs.push_back(std::make_unique<Program>(std::vector<std::string>{doctor(), "--json"},
                                                 plain_environment(variables)));
  }
  std::vector<Diagnosis> result;
  for (const auto& program : programs) result.push_back(read_diagnosis(program->finish(100)));
  return result;
}

TEST(GpuDoctor, SeesWhatThereIs) {
  NEEDS_DOCTOR();
  NEEDS_GPUS(1);
  const Diagnosis diagnosis = diagnose({}, {"--no-trials"});
  EXPECT_TRUE(says(diagnosis, "CUDA", "ok", {"driver for CUDA", "GPUs: 0 "}));
  EXPECT_TRUE(diagnosis.has("peer access"));
}

TEST(GpuDoctor, VisibleDevicesThatLeaveNoneAreNamed) {
  NEEDS_DOCTOR();
  NEEDS_GPUS(1);
  for (const std::string value : {"", "-1", "99"}) {
    EXPECT_TRUE(says(diagnose({"CUDA_VISIBLE_DEVICES=" + value}, {"--no-trials"}), "CUDA",
                     "warning", {"CUDA_VISIBLE_DEVICES is '" + value + "'"},
                     {"unset CUDA_VISIBLE_DEVICES"}));
  }
}

TEST(GpuDoctor, RanksOnGpusAndCpusAreNamedOnEveryRank) {
  NEEDS_DOCTOR();
  NEEDS_GPUS(1);
  for (const Diagnosis& diagnosis : diagnose_job({"0", "", "-1"})) {
    EXPECT_TRUE(says(diagnosis, "devices", "warning",
                     {"a GPU on rank 0; the CPU on ranks 1, 2", "rank 1 on "},
                     {"SYMM_CPU on every rank"}));
  }
}

TEST(GpuDoctor, RanksOnOneGpuAreNamedOnEveryRank) {
  NEEDS_DOCTOR();
  NEEDS_GPUS(1);
  for (const Diagnosis& diagnosis : diagnose_job({"0", "0"})) {
    EXPECT_TRUE(says(diagnosis, "devices", "ok", {"every rank would use a GPU"}));
    EXPECT_TRUE(says(diagnosis, "shared GPU", "warning", {"ranks 0 and 1 would both use GPU 0"},
                     {"SYMM_COMM_SHARE_GPU"}));
  }
}

TEST(GpuDoctor, RanksOnGpusOfTheirOwnAreInOrder) {
  NEEDS_DOCTOR();
  NEEDS_GPUS(2);
  for (const Diagnosis& diagnosis : diagnose_job({"0,1", "0,1"})) {
    EXPECT_TRUE(says(diagnosis, "devices", "ok", {"every rank would use a GPU"}));
    EXPECT_TRUE(says(diagnosis, "local rank", "ok", {"LOCAL_RANK"}));
    EXPECT_FALSE(diagnosis.has("shared GPU"));
  }
}

TEST(GpuDoctor, ALocalRankBeyondTheGpusIsNamed) {
  NEEDS_DOCTOR();
  NEEDS_GPUS(2);
  Variables variables = but(job_of_two(5, free_port()), "WORLD_SIZE=9");
  variables.push_back("CUDA_VISIBLE_DEVICES=0,1");
  EXPECT_TRUE(says(diagnose(variables, {"--no-trials"}), "local rank", "warning",
                   {"LOCAL_RANK is 5, but only 2 GPUs"}, {"SYMM_COMM_SHARE_GPU"}));
}

}  // namespace
}  // namespace symm_test
