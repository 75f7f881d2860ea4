// One all-reduce of a World, from random numbers to a comparison with the CPU's reductions.
#ifndef SYMM_TESTS_CUDA_OPERATION_H_
#define SYMM_TESTS_CUDA_OPERATION_H_

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tests/cuda/world.h"

namespace symm::cuda::testing {

struct Case {
  symm_dtype dtype = SYMM_FLOAT32;
  symm_op op = SYMM_SUM;
  uint64_t count = 0;
  bool in_place = false;
  uint32_t input_shift = 0;   // elements past a 256-byte line
  uint32_t output_shift = 0;  // ditto, out of place
  enum class Data { kMixed, kPoison } data = Data::kMixed;

  Call call() const;
  std::string text() const;
};

// The plan that the library would take, or one with another algorithm. False: it cannot be had.
bool plan_with(const World& world, const Case& c, Algorithm algorithm, Plan& plan);

// Memory for one operation at a time: inputs and outputs with guards around them on every rank.
class Operation {
 public:
  Operation(World& world, size_t most_bytes);
  ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  // New numbers, uploaded on the ranks' streams; outputs filled with guard bytes.
  void prepare(const Case& c, std::mt19937_64& random);
  void enqueue(int rank, const Plan& plan);
  // Downloads and waits.
  void finish();
  // "" if every output is what the CPU gives and no guard was touched.
  std::string difference() const;

  // All of it. "" if right.
  std::string run(const Case& c, const Plan& plan, std::mt19937_64& random);

 private:
  static constexpr size_t kGuard = 256;

  size_t input_at() const;
  size_t output_at() const;

  World& world_;
  size_t room_;
  Case case_;
  struct Buffers {
    CUdeviceptr input = 0;
    CUdeviceptr output = 0;
    std::byte* sent = nullptr;
    std::byte* received = nullptr;
  };
  std::vector<Buffers> buffers_;
};

}  // namespace symm::cuda::testing

#endif  // SYMM_TESTS_CUDA_OPERATION_H_
