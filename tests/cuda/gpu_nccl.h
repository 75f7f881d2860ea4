// What the tests of NCCL on GPUs share: which NCCL they use, how their ranks are kept apart, and
// results that say which turn and which rank they are of.
#ifndef SYMM_TESTS_CUDA_GPU_NCCL_H_
#define SYMM_TESTS_CUDA_GPU_NCCL_H_

#include <dlfcn.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cuda/gpu.h"
#include "tests/support/json.h"
#include "tests/support/reference.h"

namespace symm_test {

constexpr int kSetUpMs = 30000;
constexpr int kWaitMs = 30000;

// SYMM_TEST_NCCL names the libnccl.so.2 to be tested; null where the library is to find one.
inline const char* nccl_path() {
  const char* path = std::getenv("SYMM_TEST_NCCL");
  return path == nullptr || *path == '\0' ? nullptr : path;
}

inline Json report_of(const symm_comm* comm) {
  // Twice as much as it needs now: what it says may grow meanwhile.
  size_t needed = 0;
  EXPECT_TRUE(ok(symm_report(comm, nullptr, 0, &needed)));
  std::string text(needed * 2, '\0');
  EXPECT_TRUE(ok(symm_report(comm, text.data(), text.size(), &needed)));
  return parse_json(text.c_str());
}

// Every test of NCCL is one of these: skipped where there are not two GPUs, or no NCCL. One that is
// named must be there.
class NeedsNccl : public testing::Test {
 protected:
  void SetUp() override {
    NEEDS_GPUS(2);
    if (nccl_path() != nullptr) {
      ASSERT_NE(nullptr, dlopen(nccl_path(), RTLD_NOW | RTLD_LOCAL)) << dlerror();
    }
    const Json report = report_of(nullptr);
    if (!report["nccl"]["available"].boolean) {
      GTEST_SKIP() << "there is no NCCL: " << report["nccl"]["reason"].string;
    }
  }
};

// How ranks see each other: all in one peer domain, each in its own, or two and two.
enum class Domains { kOne = 0, kApart = 1, kPairs = 2 };
// Nothing here uses NVLink multicast. `more` are "NAME=value" for the ranks.
inline RunOptions nccl_run(Domains domains, double seconds = 60, const std::string& argument = "",
                           std::vector<std::string> more = {}) {
  RunOptions options = gpu_run(seconds);
  options.argument = argument;
  more.insert(more.end(), {"NCCL_NVLS_ENABLE=0", "NCCL_WIN_ENABLE", "NCCL_CUMEM_ENABLE",
                           domains == Domains::kOne
                               ? "SYMM_DOMAIN_RANKS"
                               : "SYMM_DOMAIN_RANKS=" + std::to_string(static_cast<int>(domains))});
  options.environment = [more](int) { return more; };
  return options;
}
// Asked by a rank.
inline bool apart() { return std::getenv("SYMM_DOMAIN_RANKS") != nullptr; }

// With NCCL inside: between domains unasked, in one because of the flag.
inline symm_comm_options nccl_options(const char* name = nullptr, int timeout_ms = kSetUpMs,
                                      int wait_timeout_ms = kWaitMs) {
  symm_comm_options options = gpu_options(name, timeout_ms, wait_timeout_ms);
  options.nccl_path = nccl_path();
  if (!apart()) options.flags |= SYMM_COMM_NCCL;
  return options;
}

// create_on_gpu() for calls that may fail.
inline symm_status try_create(const Rank& rank, const symm_comm_options& options, Comm* comm) {
  use_gpu(gpu_of(rank));
  { const Buffer first(1); }
  symm_comm* raw = nullptr;
  const symm_status status = symm_comm_create(rank.address.c_str(), rank.rank, rank.size,
                                              SYMM_CURRENT_GPU, &options, &raw);
  comm->reset(raw);
  return status;
}

// A communicator of this process alone, with an NCCL communicator in it.
inline Comm create_alone_on_gpu(const Rank& rank, const char* name) {
  use_gpu(gpu_of(rank));
  const std::string address = served_address();
  symm_comm_options options = nccl_options(name);
  options.flags |= SYMM_COMM_NCCL;
  symm_comm* comm = nullptr;
  EXPECT_TRUE(ok(symm_comm_create(address.c_str(), 0, 1, SYMM_CURRENT_GPU, &options, &comm)));
  return Comm(comm);
}

// ---- Data: floats that are whole numbers, whose sums of any order are exact ---------------------

inline float value_of(int rank, int turn, size_t i) {
  return static_cast<float>(
      (i * 7 + static_cast<size_t>(turn) * 131 + static_cast<size_t>(rank) * 1009) % 4099);
}
inline std::vector<float> values_of(int rank, int turn, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = value_of(rank, turn, i);
  return values;
}
// `factor` times the sum over the ranks.
inline std::vector<float> sum_of(int ranks, int turn, size_t count, float factor = 1) {
  std::vector<float> values(count, 0);
  for (int rank = 0; rank < ranks; ++rank) {
    for (size_t i = 0; i < count; ++i) values[i] += factor * value_of(rank, turn, i);
  }
  return values;
}
inline testing::AssertionResult equal(const std::vector<float>& expected,
                                      const std::vector<std::byte>& got) {
  if (got.size() != expected.size() * sizeof(float)) {
    return testing::AssertionFailure() << got.size() << " bytes";
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    float value;
    std::memcpy(&value, got.data() + i * sizeof value, sizeof value);
    if (value != expected[i]) {
      return testing::AssertionFailure()
             << "element " << i << " is " << value << ", not " << expected[i];
    }
  }
  return testing::AssertionSuccess();
}

// An all-reduce of every rank of `comm`, checked: it works.
inline void expect_reduces(symm_comm* comm, int turn = 1, size_t count = 5000) {
  const size_t bytes = count * sizeof(float);
  const GpuStream stream;
  Buffer input(bytes), output(bytes);
  input.set(values_of(rank_of(comm), turn, count).data(), bytes);
  output.fill(0);
  ASSERT_TRUE(ok(
      symm_all_reduce(comm, input.data(), output.data(), count, SYMM_FLOAT32, SYMM_SUM, stream)));
  stream.synchronize();
  ASSERT_TRUE(ok(symm_comm_check(comm, nullptr)));
  ASSERT_TRUE(equal(sum_of(size_of(comm), turn, count), output.get()));
}

// ---- NCCL itself, as a program that uses it beside symm has it ----------------------------------

class Nccl {
 public:
  // The copy that the communicator's report names, which must be the one that is loaded.
  explicit Nccl(const symm_comm* comm) {
    const Json report = report_of(comm);
    const std::string path = report["nccl"]["path"].string;
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
    EXPECT_NE(nullptr, library) << path << " is not loaded";
    if (library == nullptr) return;
    all_reduce_ = reinterpret_cast<AllReduce>(dlsym(library, "ncclAllReduce"));
    std::ostringstream address;
    address << dlsym(library, "ncclGetVersion");
    EXPECT_EQ(report["nccl"]["ncclGetVersion"].string, address.str());
    if (nccl_path() != nullptr) {
      EXPECT_TRUE(std::filesystem::equivalent(nccl_path(), path)) << path;
    }
    EXPECT_TRUE(ok(symm_comm_nccl(comm, &comm_)));
    EXPECT_NE(nullptr, comm_);
  }
  bool is_there() const { return all_reduce_ != nullptr && comm_ != nullptr; }
  // A sum of floats; an ncclResult_t.
  int all_reduce(const void* input, void* output, size_t count, const GpuStream& stream) const {
    return all_reduce_(input, output, count, SYMM_FLOAT32, SYMM_SUM, comm_, stream.get());
  }

 private:
  using AllReduce = int (*)(const void*, void*, size_t, int, int, void*, CUstream);
  AllReduce all_reduce_ = nullptr;
  void* comm_ = nullptr;
};

// Both ways into the communicator: symm's call, and ncclAllReduce on the ncclComm_t inside.
inline void expect_has_nccl(symm_comm* comm, int turn = 1) {
  expect_reduces(comm, turn);
  if (testing::Test::HasFatalFailure()) return;
  constexpr size_t kCount = 3000;
  const Nccl nccl(comm);
  ASSERT_TRUE(nccl.is_there());
  const GpuStream stream;
  Buffer input(kCount * sizeof(float)), output(kCount * sizeof(float));
  input.set(values_of(rank_of(comm), turn, kCount).data(), input.size());
  output.fill(0);
  ASSERT_EQ(0, nccl.all_reduce(input.data(), output.data(), kCount, stream));
  stream.synchronize();
  ASSERT_TRUE(equal(sum_of(size_of(comm), turn, kCount), output.get()));
  expect_reduces(comm, turn + 1);
}

}  // namespace symm_test

#endif  // SYMM_TESTS_CUDA_GPU_NCCL_H_
