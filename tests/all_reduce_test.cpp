// Every result against a scalar reference in rank order, and the same bits on every rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "capi/symm.h"
#include "tests/support/calls.h"
#include "tests/support/reference.h"
#include "tests/support/trial.h"

namespace symm_test {
namespace {

// The ranks gave hashes of their results, in the same order: they must be equal.
void expect_equal_results(const std::vector<std::vector<std::string>>& given) {
  for (size_t rank = 1; rank < given.size(); ++rank) {
    ASSERT_EQ(given[rank].size(), given[0].size());
    for (size_t i = 0; i < given[0].size(); ++i) {
      EXPECT_EQ(given[rank][i], given[0][i]) << "rank " << rank << " has other bits than rank 0";
    }
  }
}

// Performs trials one after another, every rank in turn comparing with the reference; gives one
// line of text and hash for each batch.
class Batch {
 public:
  Batch(const Rank& rank, symm_comm* comm, symm_window* window)
      : rank_(rank), comm_(comm), window_(window) {}

  void perform(const Trial& trial) {
    const bool check =
        number_++ % static_cast<uint64_t>(rank_.size) == static_cast<uint64_t>(rank_.rank);
    hash_ = mix(hash_ ^ symm_test::perform(comm_, window_, trial, check));
  }
  void end(const std::string& name) {
    rank_.give(name + ": " + std::to_string(hash_));
    hash_ = 0;
  }

 private:
  const Rank& rank_;
  symm_comm* comm_;
  symm_window* window_;
  uint64_t number_ = 0;
  uint64_t hash_ = 0;
};

struct World {
  const char* name;
  Layout layout;
};

class AllReduceIn : public testing::TestWithParam<World> {
 protected:
  void expect(Body body, double seconds = 60) {
    RunOptions options;
    options.seconds = seconds;
    expect_equal_results(run(GetParam().layout, body, options));
  }
};

TEST_P(AllReduceIn, EveryTypeAndOperationGivesTheReferencesBits) {
  expect([](Rank& rank) {
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    const Window window = alloc(comm.get(), window_bytes_for(64 << 10));
    Batch batch(rank, comm.get(), window.get());
    uint64_t number = 0;
    for (symm_dtype dtype : kAllDtypes) {
      for (symm_op op : kAllOps) {
        for (size_t count : {1, 7, 100, 3001}) {
          for (Place place : {Place::kSeparate, Place::kInPlace, Place::kWindow}) {
            Trial trial;
            trial.place = place;
            trial.dtype = dtype;
            trial.op = op;
            trial.count = count;
            trial.seed = ++number;
            // Each in a different place relative to cache lines, and not the same on every rank.
            trial.input_shift =
                place == Place::kSeparate
                    ? (number + static_cast<uint64_t>(rank.rank)) % (64 / size_of(dtype))
                    : number % (64 / size_of(dtype));
            trial.output_shift =
                (number * 7 + static_cast<uint64_t>(rank.rank)) % (64 / size_of(dtype));
            batch.perform(trial);
          }
        }
      }
      batch.end(name_of(dtype));
    }
  });
}

TEST_P(AllReduceIn, EveryCountAroundTheBordersIsRight) {
  expect([](Rank& rank) {
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    const Window window = alloc(comm.get(), window_bytes_for(1 << 20));
    Batch batch(rank, comm.get(), window.get());
    std::vector<size_t> sizes;
    for (size_t bytes = 0; bytes <= 80; ++bytes)
      sizes.push_back(bytes);  // the inline form ends at 56
    const size_t most = rank.size > 8 ? 16 << 10 : 512 << 10;
    for (size_t border = 128; border <= most; border *= 2) {
      for (size_t bytes : {border - 8, border - 1, border, border + 1, border + 8})
        sizes.push_back(bytes);
    }
    uint64_t number = 1000;
    for (symm_dtype dtype : {SYMM_UINT8, SYMM_BFLOAT16, SYMM_FLOAT32}) {
      for (size_t bytes : sizes) {
        Trial trial;
        trial.dtype = dtype;
        trial.count = bytes / size_of(dtype);
        trial.seed = ++number;
        trial.place = static_cast<Place>(number % 5);
        batch.perform(trial);
      }
      batch.end(name_of(dtype));
    }
  });
}

TEST_P(AllReduceIn, LargeMessagesAreRight) {
  expect([](Rank& rank) {
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    // The largest once a place; two ranks cross the size where results bypass the caches.
    const size_t most = (rank.size > 8   ? 1u << 18
                         : rank.size > 2 ? 2u << 20
                                         : 17u << 20) /
                        kSlowdown;
    const Window window = alloc(comm.get(), window_bytes_for(most));
    Batch batch(rank, comm.get(), window.get());
    uint64_t number = 2000;
    for (Place place : {Place::kSeparate, Place::kInPlace, Place::kWindow, Place::kWindowInPlace,
                        Place::kWindowElsewhere}) {
      for (size_t bytes : {most, most / 5 + 12, most / 12}) {
        Trial trial;
        trial.place = place;
        trial.dtype = bytes == most ? SYMM_FLOAT32 : SYMM_FLOAT16;
        trial.count = bytes / size_of(trial.dtype) - 1;
        trial.input_shift = ++number % 3;
        trial.seed = number;
        batch.perform(trial);
      }
      batch.end(std::to_string(static_cast<int>(place)));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Worlds, AllReduceIn,
    testing::Values(World{"one", processes(1)}, World{"two_processes", processes(2)},
                    World{"three_processes", processes(3)}, World{"four_threads", threads(4)},
                    World{"five_processes", processes(5)}, World{"two_by_three", mixed(2, 3)},
                    World{"eight_threads", threads(8)}, World{"sixteen_processes", processes(16)}),
    [](const auto& test) { return test.param.name; });

TEST(AllReduce, EveryWorldFromOneToSixteenIsRight) {
  for (int size = 1; size <= 16; ++size) {
    expect_equal_results(run(size % 2 == 0 ? mixed(2, size / 2) : threads(size), [](Rank& rank) {
      const Comm comm = create(rank);
      ASSERT_NE(comm, nullptr);
      const Window window = alloc(comm.get(), window_bytes_for(32 << 10));
      Batch batch(rank, comm.get(), window.get());
      uint64_t number = 3000;
      for (size_t count : {0, 1, 2, 3, 13, 14, 15, 97, 1000, 4099, 8000}) {
        for (symm_dtype dtype : {SYMM_FLOAT32, SYMM_BFLOAT16, SYMM_INT8}) {
          Trial trial;
          trial.dtype = dtype;
          trial.op = kAllOps[++number % kAllOps.size()];
          trial.count = count;
          trial.seed = number;
          trial.place = static_cast<Place>(number % 5);
          batch.perform(trial);
        }
      }
      batch.end("all");
    }));
  }
}

void sixty_four(Rank& rank) {
  const Comm comm = create(rank, comm_options(nullptr, 60000, 60000));
  ASSERT_NE(comm, nullptr);
  const Window window = alloc(comm.get(), window_bytes_for(64 << 10));
  Batch batch(rank, comm.get(), window.get());
  uint64_t number = 4000;
  for (size_t bytes : {0, 4, 8, 56, 60, 256, 260, 1000, 4096, 16384, 65536}) {
    for (symm_dtype dtype : {SYMM_FLOAT32, SYMM_FLOAT16}) {
      Trial trial;
      trial.dtype = dtype;
      trial.op = dtype == SYMM_FLOAT32 ? SYMM_SUM : SYMM_AVG;
      trial.count = bytes / size_of(dtype);
      trial.seed = ++number;
      trial.place = static_cast<Place>(number % 5);
      batch.perform(trial);
    }
  }
  batch.end("all");
}

TEST(AllReduce, SixtyFourThreadsAreRight) {
  RunOptions options;
  options.seconds = 60;
  expect_equal_results(run(threads(64), sixty_four, options));
}

TEST(AllReduce, SixtyFourProcessesAreRight) {
  if (kSanitized) GTEST_SKIP() << "the start-up of 64 sanitized processes alone takes minutes";
  RunOptions options;
  options.seconds = 60;
  expect_equal_results(run(processes(64), sixty_four, options));
}

}  // namespace
}  // namespace symm_test
