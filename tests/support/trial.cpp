#include "tests/support/trial.h"

#include <cstring>
#include <sstream>
#include <vector>

#include "tests/support/calls.h"
#include "tests/support/reference.h"

namespace symm_test {
namespace {

constexpr size_t kGuard = 128;
constexpr size_t kRoom = 64;  // shifts stay within this many bytes
constexpr auto kCanary = std::byte{0xc7};

size_t round_up(size_t bytes) { return (bytes + 63) / 64 * 64; }

// A range of memory with canaries before and after it.
class Guarded {
 public:
  Guarded(std::byte* start, size_t bytes) : start_(start), bytes_(bytes) {
    std::memset(start_ - kGuard, static_cast<int>(kCanary), kGuard);
    std::memset(start_ + bytes_, static_cast<int>(kCanary), kGuard);
  }
  std::byte* get() const { return start_; }
  bool intact() const {
    for (size_t i = 0; i < kGuard; ++i) {
      if (start_[i - kGuard] != kCanary || start_[bytes_ + i] != kCanary) return false;
    }
    return true;
  }

 private:
  std::byte* start_;
  size_t bytes_;
};

// Private memory for one, `shift` bytes past a 64-byte border.
class Private {
 public:
  explicit Private(size_t bytes) : memory_(bytes + 2 * kGuard + kRoom + 64) {}
  std::byte* at(size_t shift) {
    const auto base = reinterpret_cast<uintptr_t>(memory_.data()) + kGuard;
    return memory_.data() + kGuard + (64 - base % 64) % 64 + shift;
  }

 private:
  std::vector<std::byte> memory_;
};

bool in_window(Place place) { return place >= Place::kWindow; }

void check_result(const Trial& trial, int size, const std::byte* result) {
  const size_t bytes = trial.count * size_of(trial.dtype);
  std::vector<std::vector<std::byte>> inputs(static_cast<size_t>(size));
  std::vector<const void*> pointers;
  for (int rank = 0; rank < size; ++rank) {
    auto& input = inputs[static_cast<size_t>(rank)];
    input.resize(bytes);
    fill(input.data(), trial.count, trial.dtype, trial.seed, rank);
    pointers.push_back(input.data());
  }
  const auto expected = reference(pointers, trial.count, trial.dtype, trial.op);
  const size_t wrong = first_difference(result, expected.data(), trial.count, trial.dtype);
  if (wrong == SIZE_MAX) return;
  std::ostringstream operands;
  for (const void* input : pointers) operands << " " << element_text(input, wrong, trial.dtype);
  ADD_FAILURE() << trial.text() << ": element " << wrong << " is "
                << element_text(result, wrong, trial.dtype) << ", not "
                << element_text(expected.data(), wrong, trial.dtype) << "; operands"
                << operands.str();
}

}  // namespace

std::string Trial::text() const {
  static const char* const kPlaces[] = {"separate", "in place", "window", "window in place",
                                        "window elsewhere"};
  std::ostringstream out;
  out << name_of(dtype) << " " << name_of(op) << " of " << count << ", "
      << kPlaces[static_cast<int>(place)] << ", shifts " << input_shift << " and " << output_shift
      << ", seed " << seed;
  return out.str();
}

size_t window_bytes_for(size_t most_bytes) {
  return 2 * (round_up(most_bytes) + 2 * kGuard + 2 * kRoom);
}

uint64_t perform(symm_comm* comm, symm_window* window, const Trial& trial, bool check) {
  const int rank = rank_of(comm);
  const size_t element = size_of(trial.dtype);
  const size_t bytes = trial.count * element;
  const size_t input_offset = kGuard + trial.input_shift * element;
  const bool in_place = trial.place == Place::kInPlace || trial.place == Place::kWindowInPlace;

  Private input_memory(in_window(trial.place) ? 0 : bytes);
  Private output_memory(bytes);
  std::byte* slice = in_window(trial.place) ? data_as<std::byte>(window, rank) : nullptr;
  std::byte* input_start =
      in_window(trial.place) ? slice + input_offset : input_memory.at(trial.input_shift * element);
  std::byte* output_start = in_place ? input_start : output_memory.at(trial.output_shift * element);
  if (trial.place == Place::kWindowElsewhere) {
    output_start = slice + window_bytes_for(bytes) / 2 + kGuard + trial.output_shift * element;
  }
  const Guarded input(input_start, bytes);
  const Guarded output(output_start, bytes);
  if (!in_place) std::memset(output_start, 0x5a, bytes);  // poison: a skipped element shows
  fill(input_start, trial.count, trial.dtype, trial.seed, rank);

  const symm_status status =
      in_window(trial.place) ? symm_window_all_reduce(window, input_offset, output_start,
                                                      trial.count, trial.dtype, trial.op, nullptr)
                             : symm_all_reduce(comm, input_start, output_start, trial.count,
                                               trial.dtype, trial.op, nullptr);
  if (status != SYMM_OK) {
    ADD_FAILURE() << trial.text() << ": " << symm_status_name(status) << ": " << symm_last_error();
    return 0;
  }
  EXPECT_TRUE(input.intact()) << trial.text() << ": wrote beside its input";
  EXPECT_TRUE(output.intact()) << trial.text() << ": wrote beside its output";
  if (!in_place) {
    std::vector<std::byte> before(bytes);
    fill(before.data(), trial.count, trial.dtype, trial.seed, rank);
    EXPECT_TRUE(bytes == 0 || std::memcmp(before.data(), input_start, bytes) == 0)
        << trial.text() << ": changed its input";
  }
  if (check) check_result(trial, size_of(comm), output_start);
  return hash_bytes(output_start, bytes);
}

}  // namespace symm_test
