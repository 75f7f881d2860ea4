// Random all-reduces whose results are known before they run, for stress tests on any device.
//
// A Block is some all-reduces with memory of their own: where every input and output lies, with
// canaries all around. It writes the memory as it has to be before the calls and changes that to
// what it has to be after them, so that one memcmp tells whether anything at all is wrong: a
// result, an input, a byte beside them. Inputs are pieces of patterns, whose results are worked
// out once; another turn takes other pieces.
#ifndef SYMM_TESTS_SUPPORT_STRESS_H_
#define SYMM_TESTS_SUPPORT_STRESS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "capi/symm.h"
#include "tests/support/trial.h"

namespace symm_test {

// Numbers of every type for every rank, and what every operation makes of them, repeated for ever
// with a period that is a prime: no place in memory is taken for another that is as round. Without
// NaN, whose bits are nobody's business; with infinities, subnormal numbers, and in integers the
// words that the packets of GPUs have a meaning for.
class Patterns {
 public:
  Patterns(uint64_t seed, int ranks);
  // `bytes` from element `start` on.
  void input(std::byte* to, int rank, symm_dtype dtype, uint64_t start, size_t bytes) const;
  void result(std::byte* to, symm_dtype dtype, symm_op op, uint64_t start, size_t bytes) const;
  static constexpr size_t kPeriod = 65521;  // elements

 private:
  std::vector<std::vector<std::vector<std::byte>>> inputs_;        // by dtype and rank
  std::map<std::pair<int, int>, std::vector<std::byte>> results_;  // by dtype and op
};

// One all-reduce of a block. Offsets are in the window where the place says so, else in private
// memory; the input's in a window is the same on every rank.
struct Step {
  Place place = Place::kSeparate;
  symm_dtype dtype = SYMM_FLOAT32;
  symm_op op = SYMM_SUM;
  size_t count = 0;
  size_t input = 0;
  size_t output = 0;
  uint64_t seed = 0;

  size_t bytes() const;
  bool reads_window() const { return place >= Place::kWindow; }
  bool writes_window() const { return place >= Place::kWindowInPlace; }
  bool in_place() const { return place == Place::kInPlace || place == Place::kWindowInPlace; }
  std::string text() const;
};

// Private and window memory of one rank.
struct Memory {
  std::byte* own = nullptr;
  std::byte* window = nullptr;
};
struct Room {
  size_t own = 0;
  size_t window = 0;
};

class Block {
 public:
  // Equal on every rank but for the places in private memory. `steps` all-reduces, with smaller
  // messages where there is not enough room.
  Block(std::mt19937_64& random, int rank, int steps, Room most);

  const std::vector<Step>& steps() const { return steps_; }
  Room room() const { return room_; }  // multiples of 256 bytes

  // The memory before the calls of a turn, and, given that, after them.
  void before(const Patterns& patterns, uint64_t turn, Memory memory) const;
  void after(const Patterns& patterns, uint64_t turn, Memory memory) const;
  // Where `got` is not what it has to be; "" if it is the same.
  std::string difference(Memory got, Memory expected) const;

 private:
  size_t take(bool in_window, size_t bytes, size_t shift);
  std::string difference_in(bool in_window, const std::byte* got, const std::byte* expected,
                            size_t bytes) const;

  int rank_;
  Room room_;
  std::vector<Step> steps_;
};

// The number of a variable of the environment, else another.
uint64_t number_from_environment(const char* name, uint64_t otherwise);
// SYMM_STRESS_SEED repeats a run, whose seed every failure shows; SYMM_STRESS_OPERATIONS sets how
// many all-reduces there are in all.
uint64_t stress_seed();
uint64_t stress_operations(uint64_t otherwise);

}  // namespace symm_test

#endif  // SYMM_TESTS_SUPPORT_STRESS_H_
