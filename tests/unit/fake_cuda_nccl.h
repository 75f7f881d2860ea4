// Ranks over the fake driver that have the fake NCCL between them. Each test needs a process of its
// own, as ctest gives it: a process has one NCCL.
#ifndef SYMM_TESTS_UNIT_FAKE_CUDA_NCCL_H_
#define SYMM_TESTS_UNIT_FAKE_CUDA_NCCL_H_

#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/nccl/fake_nccl.h"
#include "tests/unit/fake_cuda_ranks.h"

namespace symm::cuda {

inline symm_comm_options nccl_options(uint32_t flags = 0, const char* path = FAKE_NCCL_FULL) {
  symm_comm_options options = small_options(flags);
  options.nccl_path = path;
  return options;
}

// The fake NCCL's controls. Loads it.
inline FakeNccl& fake_nccl_of(const char* path = FAKE_NCCL_FULL) {
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  auto* get =
      handle == nullptr ? nullptr : reinterpret_cast<FakeNccl* (*)()>(dlsym(handle, "fake_nccl"));
  if (get == nullptr) std::abort();
  return *get();
}

inline std::string report_of(const symm_comm* comm) {
  size_t needed = 0;
  EXPECT_EQ(SYMM_OK, symm_report(comm, nullptr, 0, &needed));
  std::string text(needed, '\0');
  EXPECT_EQ(SYMM_OK, symm_report(comm, text.data(), text.size(), &needed));
  return text;
}

inline std::string plan_of(const symm_comm* comm) {
  char text[8192];
  size_t needed = 0;
  EXPECT_EQ(SYMM_OK,
            symm_plan(comm, nullptr, 1000, SYMM_FLOAT32, SYMM_SUM, text, sizeof text, &needed));
  return text;
}

inline ::testing::AssertionResult contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "'" << part << "' is not in: " << text;
}

// An all-reduce of every rank, of floats: rank r has 1, 2, 3, ... times r + 1.
struct Reduction {
  static constexpr size_t kCount = 100;
  std::vector<Outcome> outcomes;
  std::vector<float*> output;
};
inline Reduction reduce(FakeCuda& fake, const Communicator& c,
                        const std::vector<CUstream>& stream) {
  const size_t ranks = c.comm.size();
  Reduction result;
  result.outcomes.resize(ranks);
  for (size_t rank = 0; rank < ranks; ++rank) {
    result.output.push_back(static_cast<float*>(fake.malloc(static_cast<int>(rank), 400)));
    for (size_t i = 0; i < Reduction::kCount; ++i) {
      result.output[rank][i] = static_cast<float>((rank + 1) * (i + 1));
    }
  }
  each_rank(static_cast<int>(ranks), [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    result.outcomes[r] =
        outcome(symm_all_reduce(c.comm[r], result.output[r], result.output[r], Reduction::kCount,
                                SYMM_FLOAT32, SYMM_SUM, stream[r]));
  });
  return result;
}

inline std::vector<Outcome> check_all(const Communicator& c) {
  std::vector<Outcome> outcomes;
  for (const symm_comm* comm : c.comm) outcomes.push_back(outcome(symm_comm_check(comm, nullptr)));
  return outcomes;
}

// Ranks that are kept apart, one a domain.
class Apart : public ::testing::Test {
 protected:
  explicit Apart(int gpus = 2) : fake_(gpus), nccl_(fake_nccl_of()) {
    nccl_.reset();
    setenv("SYMM_DOMAIN_RANKS", "1", 1);
    for (int gpu = 0; gpu < gpus; ++gpu) streams_.push_back(fake_.make_stream(gpu));
  }
  ~Apart() override {
    nccl_.release();
    for (CUstream stream : streams_) fake_.destroy_stream(stream);
    EXPECT_TRUE(nothing_left(fake_));
    EXPECT_TRUE(eventually([&] { return nccl_.communicators == 0; })) << nccl_.communicators;
    EXPECT_EQ(0, nccl_.windows);
    EXPECT_EQ(0, nccl_.misused);
    EXPECT_EQ(0, nccl_.overlapping);
    unsetenv("SYMM_DOMAIN_RANKS");
  }

  FakeCuda fake_;
  FakeNccl& nccl_;
  std::vector<CUstream> streams_;
};

// One peer domain that has NCCL inside.
class Inside : public Apart {
 protected:
  Inside() { unsetenv("SYMM_DOMAIN_RANKS"); }
  void make(int32_t timeout_ms = 20000) {
    symm_comm_options options = nccl_options(SYMM_COMM_NCCL);
    options.timeout_ms = timeout_ms;
    c_ = create({0, 1}, options);
    expect_all(c_.outcomes, SYMM_OK);
  }
  void TearDown() override { free_all(c_); }

  static symm_window_options window_options(bool nccl = true) {
    symm_window_options options{};
    options.size = sizeof options;
    options.flags = nccl ? SYMM_WINDOW_NCCL : 0;
    return options;
  }
  static Windows none() {
    Windows windows;
    windows.window.resize(2, nullptr);
    windows.outcomes.resize(2);
    return windows;
  }
  void alloc_one(Windows& windows, int rank, size_t bytes, bool nccl = true) {
    const auto i = static_cast<size_t>(rank);
    const symm_window_options options = window_options(nccl);
    windows.outcomes[i] =
        outcome(symm_window_alloc(c_.comm[i], bytes, &options, &windows.window[i]));
  }
  Windows alloc_nccl(size_t bytes) {
    Windows windows = none();
    each_rank(2, [&](int rank) { alloc_one(windows, rank, bytes); });
    return windows;
  }
  Windows register_nccl(const std::vector<void*>& pointers, size_t bytes) {
    Windows windows = none();
    each_rank(2, [&](int rank) {
      const auto i = static_cast<size_t>(rank);
      const symm_window_options options = window_options();
      windows.outcomes[i] = outcome(
          symm_window_register(c_.comm[i], pointers[i], bytes, &options, &windows.window[i]));
    });
    return windows;
  }
  // Another window makes those go that every rank has freed; how many there are then.
  int windows_beside_another() {
    Windows another = alloc_nccl(4096);
    expect_all(another.outcomes, SYMM_OK);
    const int count = nccl_.windows;
    free_all(another);
    return count;
  }

  Communicator c_;
};

}  // namespace symm::cuda

#endif  // SYMM_TESTS_UNIT_FAKE_CUDA_NCCL_H_
