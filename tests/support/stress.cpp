#include "tests/support/stress.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <stdexcept>

#include "tests/support/formats.h"
#include "tests/support/reference.h"

namespace symm_test {
namespace {

constexpr size_t kGuard = 128;  // bytes between any two ranges at least
constexpr size_t kLine = 64;    // shifts stay within one

size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

// Another for every block's turn and every kind of byte, so that old memory does not pass for new.
int canary(uint64_t turn) { return 0xc0 | static_cast<int>(mix(turn) % 32); }
int poison(uint64_t turn) { return 0x40 | static_cast<int>(mix(turn) % 32); }

bool is_nan(const std::byte* elements, size_t index, symm_dtype dtype) {
  const int mantissa = mantissa_bits(dtype);
  if (mantissa == 0) return false;
  uint64_t bits = 0;
  std::memcpy(&bits, elements + index * size_of(dtype), size_of(dtype));
  const uint64_t magnitudes = (uint64_t{1} << (8 * size_of(dtype) - 1)) - 1;
  const uint64_t infinity = magnitudes & ~((uint64_t{1} << mantissa) - 1);
  if (dtype == SYMM_FLOAT8_E4M3) return (bits & magnitudes) == magnitudes;
  return (bits & magnitudes) > infinity;
}

// The empty slot's word and its neighbours (kernels/cuda/packed.cuh), in integers of any width.
void plant_words(std::vector<std::byte>& elements, uint64_t seed) {
  for (size_t i = 0; i + 8 <= elements.size(); i += 8) {
    const uint64_t any = mix(seed + i);
    if (any % 64 != 0) continue;
    const uint32_t word = 0xFFFAFFF9u + static_cast<uint32_t>(any >> 8) % 4;
    std::memcpy(elements.data() + i + (any >> 16) % 2 * 4, &word, sizeof word);
  }
}

void copy_periodic(std::byte* to, const std::vector<std::byte>& pattern, size_t from,
                   size_t bytes) {
  while (bytes > 0) {
    const size_t piece = std::min(bytes, pattern.size() - from);
    std::memcpy(to, pattern.data() + from, piece);
    to += piece;
    bytes -= piece;
    from = 0;
  }
}

// Mostly small: what a tensor-parallel model sends, with everything else in between.
size_t random_bytes(std::mt19937_64& random) {
  const uint64_t kind = random() % 1000;
  if (kind < 20) return 0;
  const auto log_uniform = [&](double low, double high) {
    const double part = static_cast<double>(random() >> 11) / 9007199254740992.0;
    return static_cast<size_t>(std::exp2(low + part * (high - low)));
  };
  if (kind < 900) return log_uniform(0, 16);
  return kind < 990 ? log_uniform(16, 20) : log_uniform(20, 22);
}

}  // namespace

Patterns::Patterns(uint64_t seed, int ranks) {
  inputs_.resize(kAllDtypes.size());
  for (const symm_dtype dtype : kAllDtypes) {
    auto& inputs = inputs_[static_cast<size_t>(dtype)];
    const size_t element = size_of(dtype);
    std::vector<const void*> pointers;
    for (int rank = 0; rank < ranks; ++rank) {
      inputs.emplace_back(kPeriod * element);
      fill(inputs.back().data(), kPeriod, dtype, mix(seed) + static_cast<uint64_t>(dtype), rank);
      if (mantissa_bits(dtype) == 0) {
        plant_words(inputs.back(), seed + static_cast<uint64_t>(rank));
      }
    }
    for (const auto& input : inputs) pointers.push_back(input.data());
    std::vector<bool> bad(kPeriod, false);
    const auto look_for_nan = [&](const std::byte* elements) {
      for (size_t i = 0; i < kPeriod; ++i) {
        if (is_nan(elements, i, dtype)) bad[i] = true;
      }
    };
    for (const auto& input : inputs) look_for_nan(input.data());
    for (const symm_op op : kAllOps) {
      auto& result = results_[{dtype, op}];
      result = reference(pointers, kPeriod, dtype, op);
      look_for_nan(result.data());
    }
    // Every bad element becomes a copy of the next good one, on every rank.
    size_t good = 0;
    while (bad[good]) ++good;
    for (size_t i = kPeriod; i-- > 0;) {
      if (!bad[i]) {
        good = i;
        continue;
      }
      const auto copy = [&](std::vector<std::byte>& elements) {
        std::memcpy(elements.data() + i * element, elements.data() + good * element, element);
      };
      for (auto& input : inputs) copy(input);
      for (const symm_op op : kAllOps) copy(results_[{dtype, op}]);
    }
  }
}

void Patterns::input(std::byte* to, int rank, symm_dtype dtype, uint64_t start,
                     size_t bytes) const {
  const auto& pattern = inputs_[static_cast<size_t>(dtype)][static_cast<size_t>(rank)];
  copy_periodic(to, pattern, start % kPeriod * size_of(dtype), bytes);
}

void Patterns::result(std::byte* to, symm_dtype dtype, symm_op op, uint64_t start,
                      size_t bytes) const {
  copy_periodic(to, results_.at({dtype, op}), start % kPeriod * size_of(dtype), bytes);
}

size_t Step::bytes() const { return count * size_of(dtype); }

std::string Step::text() const {
  static const char* const kPlaces[] = {"separate", "in place", "window", "window in place",
                                        "window elsewhere"};
  std::ostringstream out;
  out << name_of(dtype) << " " << name_of(op) << " of " << count << ", "
      << kPlaces[static_cast<int>(place)] << ", offsets " << input << " and " << output;
  return out.str();
}

Block::Block(std::mt19937_64& random, int rank, int steps, Room most) : rank_(rank) {
  for (int i = 0; i < steps; ++i) {
    Step step;
    step.dtype = kAllDtypes[random() % kAllDtypes.size()];
    step.op = kAllOps[random() % kAllOps.size()];
    step.place = static_cast<Place>(random() % 5);
    const size_t element = size_of(step.dtype);
    size_t bytes = random_bytes(random);
    const auto fits = [&](size_t all) {
      const size_t with_guards = 2 * (round_up(all, kLine) + kGuard + 2 * kLine) + 512;
      return room_.own + with_guards <= most.own && room_.window + with_guards <= most.window;
    };
    if (!fits(bytes)) bytes %= 4096;
    if (!fits(bytes)) break;
    step.count = bytes == 0 ? 0 : std::max<size_t>(bytes / element, 1);
    step.seed = random();
    // Shifts in elements. Only what a window's offset is made of is equal on every rank.
    const uint64_t input_shift = random() % (kLine / element) * element;
    const uint64_t own_shift = mix(step.seed + static_cast<uint64_t>(rank)) % (kLine / element);
    const uint64_t other_shift =
        mix(step.seed - 1 - static_cast<uint64_t>(rank)) % (kLine / element);
    step.input = take(step.reads_window(), step.bytes(),
                      step.reads_window() ? input_shift : own_shift * element);
    step.output = step.in_place() ? step.input
                                  : take(step.writes_window(), step.bytes(), other_shift * element);
    steps_.push_back(step);
  }
  room_.own = round_up(room_.own + kGuard, 256);
  room_.window = round_up(room_.window + kGuard, 256);
}

// The same room on every rank, whatever the shift.
size_t Block::take(bool in_window, size_t bytes, size_t shift) {
  size_t& end = in_window ? room_.window : room_.own;
  const size_t at = round_up(end + kGuard, kLine);
  end = at + kLine + bytes;
  return at + shift;
}

void Block::before(const Patterns& patterns, uint64_t turn, Memory memory) const {
  std::memset(memory.own, canary(turn), room_.own);
  std::memset(memory.window, canary(turn), room_.window);
  for (const Step& step : steps_) {
    if (!step.in_place()) {
      std::byte* const output = (step.writes_window() ? memory.window : memory.own) + step.output;
      std::memset(output, poison(turn), step.bytes());
    }
    std::byte* const input = (step.reads_window() ? memory.window : memory.own) + step.input;
    patterns.input(input, rank_, step.dtype, mix(step.seed + turn), step.bytes());
  }
}

void Block::after(const Patterns& patterns, uint64_t turn, Memory memory) const {
  for (const Step& step : steps_) {
    std::byte* const output = (step.writes_window() ? memory.window : memory.own) + step.output;
    patterns.result(output, step.dtype, step.op, mix(step.seed + turn), step.bytes());
  }
}

std::string Block::difference(Memory got, Memory expected) const {
  return difference_in(false, got.own, expected.own, room_.own) +
         difference_in(true, got.window, expected.window, room_.window);
}

std::string Block::difference_in(bool in_window, const std::byte* got, const std::byte* expected,
                                 size_t bytes) const {
  if (std::memcmp(got, expected, bytes) == 0) return "";
  const auto wrong = static_cast<size_t>(std::mismatch(got, got + bytes, expected).first - got);
  size_t many = 0;
  for (size_t i = wrong; i < bytes; ++i) many += got[i] != expected[i];
  std::ostringstream out;
  out << many << " bytes are wrong in " << (in_window ? "the window" : "private memory")
      << "; the first, at " << wrong << ", ";
  size_t nearest = SIZE_MAX;
  std::string beside = "is beside everything";
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    for (const bool output : {false, true}) {
      if ((output ? step.writes_window() : step.reads_window()) != in_window) continue;
      const size_t at = output ? step.output : step.input;
      const std::string what = std::string(output || step.in_place() ? "output" : "input") +
                               " of step " + std::to_string(i) + " (" + step.text() + ")";
      if (wrong >= at && wrong < at + step.bytes()) {
        const size_t index = (wrong - at) / size_of(step.dtype);
        out << "is in the " << what << ": element " << index << " is "
            << element_text(got + at, index, step.dtype) << ", not "
            << element_text(expected + at, index, step.dtype);
        return out.str();
      }
      const size_t distance = wrong < at ? at - wrong : wrong - (at + step.bytes()) + 1;
      if (distance >= nearest) continue;
      nearest = distance;
      beside = "is a canary " + std::to_string(distance) + " bytes " +
               (wrong < at ? "before" : "behind") + " the " + what;
    }
  }
  out << beside;
  return out.str();
}

uint64_t number_from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return otherwise;
  char* end = nullptr;
  const uint64_t number = std::strtoull(text, &end, 10);
  if (*end != '\0') throw std::runtime_error(std::string(name) + " is no number: " + text);
  return number;
}

uint64_t stress_seed() {
  return number_from_environment("SYMM_STRESS_SEED", std::random_device()());
}

uint64_t stress_operations(uint64_t otherwise) {
  return number_from_environment("SYMM_STRESS_OPERATIONS", otherwise);
}

}  // namespace symm_test
