// The CPU reductions against a scalar reference, at every instruction level that runs here.
#include "kernels/cpu/reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "capi/symm.h"
#include "tests/support/formats.h"
#include "tests/unit/reduce_reference.h"

namespace symm::cpu {
namespace {

constexpr symm_dtype kDtypes[] = {SYMM_INT8,    SYMM_UINT8,    SYMM_INT32,       SYMM_UINT32,
                                  SYMM_INT64,   SYMM_UINT64,   SYMM_FLOAT16,     SYMM_FLOAT32,
                                  SYMM_FLOAT64, SYMM_BFLOAT16, SYMM_FLOAT8_E4M3, SYMM_FLOAT8_E5M2};
constexpr size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
constexpr symm_op kOps[] = {SYMM_SUM, SYMM_PROD, SYMM_MAX, SYMM_MIN, SYMM_AVG};

std::vector<Level> levels() {
  std::vector<Level> result;
  for (int i = 0; i <= static_cast<int>(best_level()); ++i) {
    const auto level = static_cast<Level>(i);
    if (reduce_function(level, SYMM_INT8, SYMM_SUM) != nullptr) result.push_back(level);
  }
  return result;
}

using Patterns = std::vector<uint64_t>;

std::vector<std::byte> bytes_of(symm_dtype dtype, const Patterns& patterns) {
  std::vector<std::byte> bytes(patterns.size() * kSizes[dtype]);
  for (size_t i = 0; i < patterns.size(); ++i) {
    std::memcpy(&bytes[i * kSizes[dtype]], &patterns[i], kSizes[dtype]);
  }
  return bytes;
}

uint64_t element(symm_dtype dtype, const std::byte* bytes, size_t i) {
  uint64_t pattern = 0;
  std::memcpy(&pattern, bytes + i * kSizes[dtype], kSizes[dtype]);
  return pattern;
}

// Patterns of one dtype: any bits at all, special numbers, and numbers near each other, whose sums,
// products and quotients need rounding rather than saturation.
class Numbers {
 public:
  Numbers(symm_dtype dtype, uint32_t seed) : dtype_(dtype), random_(seed) {}

  uint64_t next() {
    const uint64_t any = random_() & mask();
    switch (random_() % 8) {
      case 0:
        return any;
      case 1:
        return special(random_() % 12);
      default:
        return moderate(any);
    }
  }

 private:
  uint64_t mask() const { return ~uint64_t{0} >> (64 - 8 * kSizes[dtype_]); }
  // For integers, which have none, every number is moderate.
  int mantissa_bits() const { return symm_test::mantissa_bits(dtype_); }

  uint64_t special(uint64_t which) const {
    const uint64_t sign = mask() / 2 + 1;
    const uint64_t unit = uint64_t{1} << mantissa_bits();  // the smallest normal number
    const uint64_t top = (sign - 1) & ~(unit - 1);         // infinity, where there is one
    const uint64_t magnitudes[] = {0, 1, unit - 1, top - 1, top, sign - 1};
    return magnitudes[which / 2] | (which % 2 == 0 ? 0 : sign);
  }

  uint64_t moderate(uint64_t any) const {
    if (mantissa_bits() == 0) return any;
    // The exponent is one of the four around that of 1.
    const uint64_t sign = mask() / 2 + 1;
    const uint64_t unit = uint64_t{1} << mantissa_bits();
    const uint64_t bias = (sign / unit) / 2 - 1;
    const uint64_t exponent = bias - 2 + (any >> 3) % 4;
    return (any & (sign | (unit - 1))) | exponent * unit;
  }

  symm_dtype dtype_;
  std::mt19937_64 random_;
};

// Bytes at `offset` from a cache line, with bytes around them that tell of stores beyond the ends.
class Array {
 public:
  Array(size_t bytes, size_t offset)
      : bytes_(bytes), memory_(bytes + offset + 2 * kGuard, kUntouched) {
    start_ = kGuard + offset;
    start_ += -reinterpret_cast<uintptr_t>(memory_.data() + kGuard) % 64;
  }
  Array(const std::vector<std::byte>& content, size_t offset) : Array(content.size(), offset) {
    std::copy(content.begin(), content.end(), data());
  }

  std::byte* data() { return memory_.data() + start_; }
  bool guards_hold() const {
    const auto untouched = [](std::byte b) { return b == kUntouched; };
    return std::all_of(memory_.data(), memory_.data() + start_, untouched) &&
           std::all_of(memory_.data() + start_ + bytes_, memory_.data() + memory_.size(),
                       untouched);
  }

 private:
  static constexpr size_t kGuard = 128;
  static constexpr std::byte kUntouched{0x5a};
  size_t bytes_;
  size_t start_;
  std::vector<std::byte> memory_;
};

// A call and what it must give.
struct Trial {
  symm_dtype dtype;
  symm_op op;
  std::vector<std::vector<std::byte>> sources;
  std::vector<std::byte> expected;

  int n() const { return static_cast<int>(sources.size()); }
};

Trial trial_of(symm_dtype dtype, symm_op op, const std::vector<Patterns>& sources) {
  Trial trial{dtype, op, {}, {}};
  for (const Patterns& source : sources) trial.sources.push_back(bytes_of(dtype, source));
  Patterns expected;
  Patterns operands(sources.size());
  for (size_t i = 0; i < sources[0].size(); ++i) {
    for (size_t s = 0; s < sources.size(); ++s) operands[s] = sources[s][i];
    expected.push_back(reference::reduce(dtype, op, operands));
  }
  trial.expected = bytes_of(dtype, expected);
  return trial;
}

Trial random_trial(symm_dtype dtype, symm_op op, int n, size_t count, uint32_t seed) {
  Numbers numbers(dtype, seed);
  std::vector<Patterns> sources(n, Patterns(count));
  for (Patterns& source : sources) {
    for (uint64_t& pattern : source) pattern = numbers.next();
  }
  return trial_of(dtype, op, sources);
}

// Element by element, so that a failure says which operands gave what.
::testing::AssertionResult equal(const Trial& trial, const std::byte* result, size_t first,
                                 size_t count) {
  const size_t size = kSizes[trial.dtype];
  if (std::memcmp(result, &trial.expected[first * size], count * size) == 0) {
    return ::testing::AssertionSuccess();
  }
  for (size_t i = 0;; ++i) {
    const uint64_t got = element(trial.dtype, result, i);
    const uint64_t expected = element(trial.dtype, trial.expected.data(), first + i);
    if (got == expected) continue;
    auto failure = ::testing::AssertionFailure();
    failure << "element " << i << std::hex << " is 0x" << got << ", not 0x" << expected << ", of";
    for (const auto& source : trial.sources) {
      failure << " 0x" << element(trial.dtype, source.data(), first + i);
    }
    return failure;
  }
}

std::string describe(Level level, const Trial& trial, size_t count) {
  return std::string(level_name(level)) + ", dtype " + std::to_string(trial.dtype) + ", op " +
         std::to_string(trial.op) + ", n " + std::to_string(trial.n()) + ", count " +
         std::to_string(count);
}

// Where a test puts the arrays, in elements from a cache line, and which of them are one.
struct Placement {
  std::vector<size_t> offsets;  // of the sources, out and also
  int out_is = -1;              // the source that is `out`, or -1
  int also_is = -1;
  bool also = false;
  Store store = Store::kCached;
};

// Elements [first, first + count) of a trial's sources, reduced where `placement` says.
void check(Level level, const Trial& trial, size_t first, size_t count,
           const Placement& placement) {
  const size_t size = kSizes[trial.dtype];
  const auto n = static_cast<size_t>(trial.n());
  std::vector<Array> arrays;
  std::vector<const void*> pointers;
  for (size_t s = 0; s < n; ++s) {
    const auto begin = trial.sources[s].begin() + static_cast<ptrdiff_t>(first * size);
    const std::vector<std::byte> content(begin, begin + static_cast<ptrdiff_t>(count * size));
    arrays.emplace_back(content, placement.offsets[s] * size);
  }
  for (Array& array : arrays) pointers.push_back(array.data());
  Array separate_out(count * size, placement.offsets[n] * size);
  Array separate_also(count * size, placement.offsets[n + 1] * size);
  Array& out = placement.out_is < 0 ? separate_out : arrays[placement.out_is];
  Array& also = placement.also_is < 0 ? separate_also : arrays[placement.also_is];

  reduce_function(level, trial.dtype, trial.op)(out.data(), placement.also ? also.data() : nullptr,
                                                pointers.data(), trial.n(), count, placement.store);

  ASSERT_TRUE(equal(trial, out.data(), first, count)) << describe(level, trial, count);
  ASSERT_TRUE(out.guards_hold()) << describe(level, trial, count);
  if (placement.also) {
    ASSERT_TRUE(equal(trial, also.data(), first, count))
        << "also: " << describe(level, trial, count);
    ASSERT_TRUE(also.guards_hold()) << "also: " << describe(level, trial, count);
  }
  for (size_t s = 0; s < n; ++s) {
    if (&arrays[s] == &out || (placement.also && &arrays[s] == &also)) continue;
    ASSERT_EQ(std::memcmp(arrays[s].data(), &trial.sources[s][first * size], count * size), 0)
        << "source " << s << " was changed: " << describe(level, trial, count);
  }
}

Placement anywhere(std::mt19937& random, int n) {
  Placement placement;
  for (int i = 0; i < n + 2; ++i) placement.offsets.push_back(random() % 64);
  placement.also = random() % 2 == 0;
  placement.store = random() % 2 == 0 ? Store::kCached : Store::kStreaming;
  return placement;
}

TEST(ReduceTest, EveryDtypeAndOpMatchesTheReferenceForAnyCountNumberOfSourcesAndAlignment) {
  std::mt19937 random(1);
  for (const symm_dtype dtype : kDtypes) {
    for (const symm_op op : kOps) {
      for (const int n : {1, 2, 3, 4, 5, 8, 16}) {
        const Trial trial = random_trial(dtype, op, n, 3001, random());
        for (const Level level : levels()) {
          for (size_t count = 0; count <= 130; ++count) {
            ASSERT_NO_FATAL_FAILURE(
                check(level, trial, random() % 2000, count, anywhere(random, n)));
          }
          for (const size_t count : {size_t{1024}, size_t{2999}, size_t{3001}}) {
            ASSERT_NO_FATAL_FAILURE(check(level, trial, 0, count, anywhere(random, n)));
          }
        }
      }
    }
  }
}

TEST(ReduceTest, OutputsMayBeAnySourceWithoutChangingTheOrderOfOperands) {
  std::mt19937 random(2);
  for (const symm_dtype dtype : kDtypes) {
    for (const symm_op op : kOps) {
      for (const int n : {1, 2, 3, 5}) {
        const Trial trial = random_trial(dtype, op, n, 700, random());
        for (const Level level : levels()) {
          for (int out_is = -1; out_is < n; ++out_is) {
            for (int also_is = -1; also_is < n; ++also_is) {
              if (out_is == also_is && out_is >= 0) continue;
              for (const size_t count : {size_t{3}, size_t{61}, size_t{700}}) {
                Placement placement = anywhere(random, n);
                placement.out_is = out_is;
                placement.also_is = also_is;
                placement.also = true;
                ASSERT_NO_FATAL_FAILURE(check(level, trial, 0, count, placement));
              }
            }
          }
        }
      }
    }
  }
}

void check_everywhere(const Trial& trial, size_t count) {
  const Placement placement{std::vector<size_t>(trial.sources.size() + 2, 0)};
  for (const Level level : levels()) {
    ASSERT_NO_FATAL_FAILURE(check(level, trial, 0, count, placement));
  }
}

TEST(ReduceTest, EveryPairOfFloat8NumbersGivesTheReferencesResult) {
  Patterns first, second;
  for (uint64_t a = 0; a < 256; ++a) {
    for (uint64_t b = 0; b < 256; ++b) {
      first.push_back(a);
      second.push_back(b);
    }
  }
  for (const symm_dtype dtype : {SYMM_FLOAT8_E4M3, SYMM_FLOAT8_E5M2}) {
    for (const symm_op op : kOps) {
      ASSERT_NO_FATAL_FAILURE(check_everywhere(trial_of(dtype, op, {first, second}), first.size()));
    }
  }
}

TEST(ReduceTest, Every16BitFloatMeetsNumbersThatRoundItOverflowAndCancel) {
  Patterns all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = i;
  Numbers float16(SYMM_FLOAT16, 3), bfloat16(SYMM_BFLOAT16, 4);
  for (const symm_dtype dtype : {SYMM_FLOAT16, SYMM_BFLOAT16}) {
    Numbers& numbers = dtype == SYMM_FLOAT16 ? float16 : bfloat16;
    for (const symm_op op : kOps) {
      // The number itself, its negative, the number that follows, and anything.
      Patterns negative(all), next(all), random(all);
      for (uint64_t& pattern : negative) pattern ^= 0x8000;
      for (uint64_t& pattern : next) pattern = (pattern + 1) & 0xffff;
      for (uint64_t& pattern : random) pattern = numbers.next();
      for (const Patterns& other : {all, negative, next, random}) {
        ASSERT_NO_FATAL_FAILURE(check_everywhere(trial_of(dtype, op, {all, other}), all.size()));
      }
    }
  }
}

TEST(ReduceTest, NarrowFloatsAccumulateInFloat32AndAreRoundedOnce) {
  // 2048 + 1 + 1 is 2050 only if 2049, which float16 lacks, is kept on the way.
  const Trial trial = trial_of(SYMM_FLOAT16, SYMM_SUM, {{0x6800}, {0x3c00}, {0x3c00}});
  EXPECT_EQ(element(SYMM_FLOAT16, trial.expected.data(), 0), 0x6801u);
  check_everywhere(trial, 1);
}

TEST(ReduceTest, OverflowIsInfiniteIn16BitFloatsAndSaturatesInFloat8) {
  const auto sum = [](symm_dtype dtype, uint64_t a, uint64_t b) {
    const Trial trial = trial_of(dtype, SYMM_SUM, {{a}, {b}});
    check_everywhere(trial, 1);
    return element(dtype, trial.expected.data(), 0);
  };
  EXPECT_EQ(sum(SYMM_FLOAT16, 0x7bff, 0x7bff), 0x7c00u);
  EXPECT_EQ(sum(SYMM_BFLOAT16, 0xff7f, 0xff7f), 0xff80u);
  EXPECT_EQ(sum(SYMM_FLOAT8_E4M3, 0x7e, 0x7e), 0x7eu);
  EXPECT_EQ(sum(SYMM_FLOAT8_E5M2, 0x7b, 0x7b), 0x7bu);
  EXPECT_EQ(sum(SYMM_FLOAT8_E5M2, 0xfc, 0x00), 0xfbu);  // -infinity
}

TEST(ReduceTest, OneSourceIsCopiedBitForBitSignallingNansIncluded) {
  const uint64_t nans[] = {0x7f800001, 0xff800001};
  for (const symm_op op : kOps) {
    const Trial trial = trial_of(SYMM_FLOAT32, op, {{nans[0], nans[1]}});
    EXPECT_EQ(element(SYMM_FLOAT32, trial.expected.data(), 1), nans[1]);
    check_everywhere(trial, 2);
  }
}

TEST(ReduceTest, MaxAndMinGiveNanForAnyNanOperandAndOrderTheZeros) {
  const uint64_t nan = 0x7fc00000, one = 0x3f800000, zero = 0, minus_zero = 0x80000000;
  const auto result = [](symm_op op, const std::vector<uint64_t>& operands) {
    std::vector<Patterns> sources;
    for (const uint64_t operand : operands) sources.push_back({operand});
    const Trial trial = trial_of(SYMM_FLOAT32, op, sources);
    check_everywhere(trial, 1);
    return element(SYMM_FLOAT32, trial.expected.data(), 0);
  };
  for (const symm_op op : {SYMM_MAX, SYMM_MIN}) {
    EXPECT_EQ(result(op, {nan, one, one}), 0xffffffffu);
    EXPECT_EQ(result(op, {one, nan, one}), 0xffffffffu);
    EXPECT_EQ(result(op, {one, one, nan}), 0xffffffffu);
  }
  EXPECT_EQ(result(SYMM_MAX, {zero, minus_zero}), zero);
  EXPECT_EQ(result(SYMM_MAX, {minus_zero, zero}), zero);
  EXPECT_EQ(result(SYMM_MIN, {zero, minus_zero}), minus_zero);
  EXPECT_EQ(result(SYMM_MIN, {minus_zero, zero}), minus_zero);
}

TEST(ReduceTest, IntegersWrapAndAveragesAreTruncatedTowardsZero) {
  const auto result = [](symm_dtype dtype, symm_op op, const std::vector<int64_t>& operands) {
    std::vector<Patterns> sources;
    for (const int64_t operand : operands) sources.push_back({static_cast<uint64_t>(operand)});
    const Trial trial = trial_of(dtype, op, sources);
    check_everywhere(trial, 1);
    return element(dtype, trial.expected.data(), 0);
  };
  EXPECT_EQ(result(SYMM_INT8, SYMM_SUM, {127, 1}), 0x80u);
  EXPECT_EQ(result(SYMM_INT32, SYMM_PROD, {INT32_MIN, -1}), 0x80000000u);
  EXPECT_EQ(result(SYMM_INT64, SYMM_AVG, {INT64_MIN, 0}), uint64_t{3} << 62);
  EXPECT_EQ(result(SYMM_INT8, SYMM_AVG, {-3, -4}), 0xfdu);
  EXPECT_EQ(result(SYMM_INT32, SYMM_AVG, {INT32_MIN, 0, 0}), static_cast<uint32_t>(INT32_MIN / 3));
  EXPECT_EQ(result(SYMM_UINT32, SYMM_AVG, {UINT32_MAX, 0}), uint64_t{UINT32_MAX / 2});
  EXPECT_EQ(result(SYMM_UINT8, SYMM_AVG, {200, 100, 3}), 47u / 3);
}

TEST(ReduceTest, TheQuotientOfEvery8BitSumIsExact) {
  Patterns sums(256);
  for (size_t i = 0; i < sums.size(); ++i) sums[i] = i;
  for (int n = 2; n <= 300; ++n) {
    std::vector<Patterns> sources(n, Patterns(256, 0));
    sources.back() = sums;
    for (const symm_dtype dtype : {SYMM_INT8, SYMM_UINT8}) {
      ASSERT_NO_FATAL_FAILURE(check_everywhere(trial_of(dtype, SYMM_AVG, sources), 256));
    }
  }
}

TEST(ReduceTest, TheQuotientOfA32BitSumIsExactNextToEveryMultiple) {
  std::mt19937 random(5);
  for (const int n : {2, 3, 5, 7, 10, 64, 100}) {
    Patterns sums;
    for (int i = 0; i < 500; ++i) {
      const uint32_t multiple = random() / n * n;
      for (const uint32_t sum : {multiple - 1, multiple, multiple + 1}) sums.push_back(sum);
    }
    std::vector<Patterns> sources(n, Patterns(sums.size(), 0));
    sources.back() = sums;
    for (const symm_dtype dtype : {SYMM_INT32, SYMM_UINT32}) {
      ASSERT_NO_FATAL_FAILURE(check_everywhere(trial_of(dtype, SYMM_AVG, sources), sums.size()));
    }
  }
}

TEST(CopyTest, CopiesExactlyTheBytesGivenAtAnyAlignment) {
  std::mt19937 random(6);
  std::vector<std::byte> content(5000);
  for (std::byte& b : content) b = static_cast<std::byte>(random());
  std::vector<size_t> counts{1000, 4096, 5000};
  for (size_t bytes = 0; bytes <= 400; ++bytes) counts.push_back(bytes);
  for (const Level level : levels()) {
    for (const Store store : {Store::kCached, Store::kStreaming}) {
      for (const size_t bytes : counts) {
        for (int i = 0; i < 4; ++i) {
          const size_t from = random() % (content.size() - bytes + 1);
          Array out(bytes, random() % 64);
          copy(level, out.data(), &content[0] + from, bytes, store);
          ASSERT_EQ(std::memcmp(out.data(), content.data() + from, bytes), 0) << bytes;
          ASSERT_TRUE(out.guards_hold()) << level_name(level) << ", " << bytes << " bytes";
        }
      }
    }
  }
}

TEST(LevelTest, TheBestLevelHasAFunctionForEveryDtypeAndOpAndNoOther) {
  const Level best = best_level();
  for (const symm_dtype dtype : kDtypes) {
    for (const symm_op op : kOps) EXPECT_NE(reduce_function(best, dtype, op), nullptr);
  }
  EXPECT_EQ(reduce_function(best, SYMM_DTYPE_NONE, SYMM_SUM), nullptr);
  EXPECT_EQ(reduce_function(best, static_cast<symm_dtype>(12), SYMM_SUM), nullptr);
  EXPECT_EQ(reduce_function(best, SYMM_INT8, SYMM_OP_NONE), nullptr);
  EXPECT_EQ(reduce_function(best, SYMM_INT8, static_cast<symm_op>(5)), nullptr);
  EXPECT_EQ(reduce_function(static_cast<Level>(200), SYMM_INT8, SYMM_SUM), nullptr);
}

TEST(LevelTest, TheBestLevelOfThisCpuIsTheOneItsFeaturesAllow) {
#if defined(__x86_64__)
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool v4 = v3 && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  EXPECT_EQ(best_level() >= Level::kX86V3, v3) << level_name(best_level());
  EXPECT_EQ(best_level() >= Level::kX86V4, v4) << level_name(best_level());
#elif defined(__aarch64__)
  EXPECT_EQ(best_level(), Level::kNeon);
#endif
}

}  // namespace
}  // namespace symm::cpu
