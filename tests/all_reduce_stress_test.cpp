// Calls of every kind in random order, windows rewritten at once, unusual floating point modes.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cfenv>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "capi/symm.h"
#include "tests/support/calls.h"
#include "tests/support/reference.h"
#include "tests/support/trial.h"

namespace symm_test {
namespace {

// Whether some rank has had its time, the same on every rank: beside other programs a call of ranks
// that take turns on the CPUs may take a thousand times as long, and the calls are then fewer.
bool enough(const Stopwatch& clock, double seconds, symm_comm* comm) {
  int64_t over = clock.seconds() > seconds * kSlowdown ? 1 : 0;
  EXPECT_TRUE(ok(symm_all_reduce(comm, &over, &over, 1, SYMM_INT64, SYMM_MAX, nullptr)));
  return over != 0;
}

// Calls in random order over several sizes of message: all algorithms alternate, and each must
// leave every other's places as that needs them.
void random_calls(Rank& rank) {
  const Comm comm = create(rank);
  ASSERT_NE(comm, nullptr);
  const size_t most = rank.size > 4 ? 64 << 10 : 1 << 20;
  const Window first = alloc(comm.get(), window_bytes_for(most));
  const Window second = alloc(comm.get(), window_bytes_for(most));
  std::mt19937_64 random(std::stoull(rank.argument));  // equal on every rank
  uint64_t hash = 0;
  const int calls = (rank.size > 8 ? 300 : 1500) / kSlowdown;
  const Stopwatch clock;
  for (int call = 0; call < calls; ++call) {
    if (call % 20 == 0 && enough(clock, 12, comm.get())) break;
    if (random() % 16 == 0) {
      EXPECT_TRUE(ok(symm_comm_barrier(comm.get(), nullptr)));
    }
    Trial trial;
    trial.dtype = kAllDtypes[random() % kAllDtypes.size()];
    trial.op = kAllOps[random() % kAllOps.size()];
    // Sizes evenly over the powers of two.
    const size_t most_here = size_t{1} << random() % (rank.size > 4 ? 17 : 21);
    trial.count = random() % (std::min(most, most_here) / size_of(trial.dtype) + 1);
    trial.place = static_cast<Place>(random() % 5);
    trial.input_shift = random() % (64 / size_of(trial.dtype));
    trial.output_shift = random() % (64 / size_of(trial.dtype));
    trial.seed = random();
    symm_window* window = random() % 2 == 0 ? first.get() : second.get();
    hash = mix(hash ^ perform(comm.get(), window, trial, call % rank.size == rank.rank));
    if (testing::Test::HasFailure()) break;
  }
  rank.give(std::to_string(hash));
}

TEST(AllReduceStress, RandomCallsAreAllRight) {
  for (const Layout layout : {processes(2), processes(3), mixed(2, 2), threads(7), mixed(3, 4)}) {
    RunOptions options;
    options.seconds = 60;
    options.argument = std::to_string(std::random_device()());
    SCOPED_TRACE("seed " + options.argument + ", " + std::to_string(layout.processes) + " x " +
                 std::to_string(layout.threads));
    const auto given = run(layout, random_calls, options);
    for (const auto& of_rank : given) EXPECT_EQ(of_rank, given[0]);
  }
}

TEST(AllReduceStress, AWindowMayBeRewrittenAsSoonAsItsCallReturns) {
  run(mixed(2, 2), [](Rank& rank) {
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    const Window window = alloc(comm.get(), 256 << 10);
    auto* own = data_as<uint32_t>(window.get(), rank.rank);
    std::vector<uint32_t> result(64 << 10);
    for (uint32_t round = 1; round <= 2000 / kSlowdown; ++round) {
      // From a line's to many chunks' worth; ranks run ahead of each other as far as they may.
      const size_t count = round % 50 == 0 ? 64 << 10 : size_t{1} << round % 13;
      for (size_t i = 0; i < count; ++i) own[i] = round * 1000 + static_cast<uint32_t>(rank.rank);
      ASSERT_TRUE(ok(symm_window_all_reduce(window.get(), 0, result.data(), count, SYMM_UINT32,
                                            SYMM_SUM, nullptr)));
      std::memset(own, 0xff, count * 4);
      for (size_t i = 0; i < count; ++i)
        ASSERT_EQ(result[i], 4 * round * 1000 + 6) << round << ": " << i;
    }
  });
}

TEST(AllReduceStress, AnInputMayBeRewrittenAsSoonAsItsCallReturns) {
  run(mixed(2, 2), [](Rank& rank) {
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    std::vector<uint32_t> values(64 << 10), result(64 << 10);
    for (uint32_t round = 1; round <= 2000 / kSlowdown; ++round) {
      const size_t count = round % 50 == 0 ? 64 << 10 : size_t{1} << round % 13;
      for (size_t i = 0; i < count; ++i)
        values[i] = round * 1000 + static_cast<uint32_t>(rank.rank);
      ASSERT_TRUE(ok(symm_all_reduce(comm.get(), values.data(), result.data(), count, SYMM_UINT32,
                                     SYMM_SUM, nullptr)));
      std::memset(values.data(), 0xff, count * 4);
      for (size_t i = 0; i < count; ++i)
        ASSERT_EQ(result[i], 4 * round * 1000 + 6) << round << ": " << i;
    }
  });
}

TEST(AllReduceStress, ManySmallCallsInARowAreRight) {
  run(processes(2), [](Rank& rank) {
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    const Stopwatch clock;
    for (int64_t round = 0; round < 200000 / (kSlowdown * kSlowdown); ++round) {
      if (round % 1000 == 0 && enough(clock, 10, comm.get())) break;
      const int64_t mine = round * (rank.rank + 1);
      int64_t sum = 0;
      const symm_status status =
          symm_all_reduce(comm.get(), &mine, &sum, 1, SYMM_INT64, SYMM_SUM, nullptr);
      ASSERT_EQ(status, SYMM_OK) << symm_last_error();
      ASSERT_EQ(sum, 3 * round);
    }
  });
}

TEST(AllReduceStress, FloatingPointModesOfARankChangeNeitherItsResultsNorThemselves) {
#if defined(__x86_64__)
  const auto given = run(mixed(2, 2), [](Rank& rank) {
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    const std::vector<symm_dtype> dtypes = {SYMM_FLOAT16,  SYMM_FLOAT32,     SYMM_FLOAT64,
                                            SYMM_BFLOAT16, SYMM_FLOAT8_E4M3, SYMM_FLOAT8_E5M2};
    constexpr size_t kCount = 5000;
    const unsigned usual = _mm_getcsr();
    uint64_t hash = 0;
    for (symm_dtype dtype : dtypes) {
      for (symm_op op : kAllOps) {
        // Numbers near and below the least normal ones, of every rank.
        std::vector<std::vector<std::byte>> inputs(static_cast<size_t>(rank.size),
                                                   std::vector<std::byte>(kCount * 8));
        std::vector<const void*> pointers;
        for (int peer = 0; peer < rank.size; ++peer) {
          auto& input = inputs[static_cast<size_t>(peer)];
          fill(input.data(), kCount, dtype, static_cast<uint64_t>(dtype) * 10 + op, peer);
          for (size_t i = 0; i < kCount * size_of(dtype); i += 4 * size_of(dtype)) {
            // Every fourth element: its top byte's exponent bits to zero.
            input[i + size_of(dtype) - 1] &= std::byte{0x80};
            if (size_of(dtype) > 2) input[i + size_of(dtype) - 2] &= std::byte{0x3f};
          }
          pointers.push_back(input.data());
        }
        const auto expected = reference(pointers, kCount, dtype, op);
        std::vector<std::byte> result(kCount * size_of(dtype));
        for (int mode = 0; mode < 4; ++mode) {
          // Another mode on every rank: flush to zero, denormals are zero, a rounding direction.
          switch ((mode + rank.rank) % 4) {
            case 1:
              _mm_setcsr(usual | 0x8040);
              break;
            case 2:
              fesetround(FE_UPWARD);
              break;
            case 3:
              fesetround(FE_TOWARDZERO);
              _mm_setcsr(_mm_getcsr() | 0x8000);
              break;
          }
          const unsigned before = _mm_getcsr() & ~0x3fu;  // without the sticky exception flags
          const symm_status status =
              symm_all_reduce(comm.get(), pointers[static_cast<size_t>(rank.rank)], result.data(),
                              kCount, dtype, op, nullptr);
          const unsigned after = _mm_getcsr() & ~0x3fu;
          fesetround(FE_TONEAREST);
          _mm_setcsr(usual);
          ASSERT_TRUE(ok(status));
          EXPECT_EQ(before, after) << "the caller's mode was changed";
          const size_t wrong = first_difference(result.data(), expected.data(), kCount, dtype);
          ASSERT_EQ(wrong, SIZE_MAX)
              << name_of(dtype) << " " << name_of(op) << " in mode " << (mode + rank.rank) % 4
              << ": " << element_text(result.data(), wrong, dtype) << ", not "
              << element_text(expected.data(), wrong, dtype);
          hash = mix(hash ^ hash_bytes(result.data(), result.size()));
        }
      }
    }
    rank.give(std::to_string(hash));
  });
  for (const auto& of_rank : given) EXPECT_EQ(of_rank, given[0]);
#else
  GTEST_SKIP() << "the modes are set as x86-64 has them";
#endif
}

size_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  for (size_t kib = 0; file >> name;) {
    if (name == "MemAvailable:" && file >> kib) return kib << 10;
  }
  return 0;
}

TEST(AllReduceStress, WindowsPastFourGibibytesAreUsedFromEndToEnd) {
  // Two slices of 4 GiB and a bit: offsets need more than 32 bits in a slice and in the whole.
  if (kSanitized) GTEST_SKIP() << "needs memory that sanitizers use themselves";
  if (available_memory() < size_t{14} << 30) GTEST_SKIP() << "needs 14 GiB of available memory";
  RunOptions options;
  options.seconds = 90;
  run(
      processes(2),
      [](Rank& rank) {
        const Comm comm = create(rank, comm_options(nullptr, 60000, 60000));
        ASSERT_NE(comm, nullptr);
        constexpr size_t kBytes = (size_t{1} << 32) + (2 << 20);
        const Window window = alloc(comm.get(), kBytes);
        ASSERT_NE(window, nullptr);
        size_t bytes = 0;
        EXPECT_TRUE(ok(symm_window_size(window.get(), &bytes)));
        EXPECT_EQ(bytes, kBytes);
        auto* own = data_as<std::byte>(window.get(), rank.rank);
        constexpr size_t kCount = 1 << 18;
        std::vector<float> result(kCount);
        for (size_t offset :
             {size_t{0}, (size_t{1} << 32) - 4096, size_t{1} << 32, kBytes - kCount * 4}) {
          auto* input = reinterpret_cast<float*>(own + offset);
          for (size_t i = 0; i < kCount; ++i)
            input[i] = static_cast<float>(i % 1000 + static_cast<size_t>(rank.rank) + offset % 97);
          ASSERT_TRUE(ok(symm_window_all_reduce(window.get(), offset, result.data(), kCount,
                                                SYMM_FLOAT32, SYMM_SUM, nullptr)));
          for (size_t i = 0; i < kCount; ++i) {
            ASSERT_EQ(result[i], static_cast<float>(2 * (i % 1000 + offset % 97) + 1))
                << "offset " << offset << ", " << i;
          }
        }
        EXPECT_TRUE(ok(symm_comm_barrier(comm.get(), nullptr)));
        const int peer = 1 - rank.rank;
        const auto* last =
            reinterpret_cast<const float*>(data_as<std::byte>(window.get(), peer) + kBytes) - 1;
        EXPECT_EQ(*last, static_cast<float>((kCount - 1) % 1000 + static_cast<size_t>(peer) +
                                            (kBytes - kCount * 4) % 97));
        EXPECT_TRUE(ok(symm_comm_barrier(comm.get(), nullptr)));
      },
      options);
}

}  // namespace
}  // namespace symm_test
