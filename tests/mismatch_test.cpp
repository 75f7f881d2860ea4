// Ranks that call different things: every one is told both calls, and nothing hangs or is computed.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "capi/symm.h"
#include "tests/support/calls.h"

namespace symm_test {
namespace {

// What a rank has to call with.
struct Kit {
  symm_comm* comm;
  symm_window* window;
  symm_window* other_window;
  std::vector<float> values;
};

struct NamedCall {
  std::string function;
  std::vector<std::string> details;  // what a message about it says
  std::function<symm_status(Kit&)> call;
};

NamedCall reduce(size_t count, symm_dtype dtype, symm_op op, const char* dtype_name,
                 const char* op_name) {
  return {
      "symm_all_reduce", {"count " + std::to_string(count), dtype_name, op_name}, [=](Kit& kit) {
        return symm_all_reduce(kit.comm, kit.values.data(), kit.values.data(), count, dtype, op,
                               nullptr);
      }};
}

NamedCall reduce_window(bool other, size_t offset, size_t count) {
  return {"symm_window_all_reduce",
          {"offset " + std::to_string(offset), "count " + std::to_string(count)},
          [=](Kit& kit) {
            return symm_window_all_reduce(other ? kit.other_window : kit.window, offset,
                                          kit.values.data(), count, SYMM_FLOAT32, SYMM_SUM,
                                          nullptr);
          }};
}

// Calls of which no two are the same: all algorithms, forms, sizes, types and operations, and
// set-up.
const std::vector<NamedCall>& all_calls() {
  static const std::vector<NamedCall> calls = {
      reduce(4, SYMM_FLOAT32, SYMM_SUM, "float32", "sum"),
      reduce(8, SYMM_FLOAT32, SYMM_SUM, "float32", "sum"),
      reduce(4, SYMM_INT32, SYMM_SUM, "int32", "sum"),
      reduce(4, SYMM_FLOAT32, SYMM_MAX, "float32", "max"),
      reduce(0, SYMM_FLOAT32, SYMM_SUM, "float32", "sum"),
      reduce(300, SYMM_FLOAT32, SYMM_SUM, "float32", "sum"),
      reduce(60000, SYMM_FLOAT32, SYMM_SUM, "float32", "sum"),
      reduce_window(false, 0, 4),
      reduce_window(false, 64, 4),
      reduce_window(true, 0, 4),
      {"symm_comm_barrier", {}, [](Kit& kit) { return symm_comm_barrier(kit.comm, nullptr); }},
      {"symm_window_alloc",
       {},
       [](Kit& kit) {
         symm_window* window = nullptr;
         const symm_status status = symm_window_alloc(kit.comm, 64, nullptr, &window);
         symm_window_free(window);
         return status;
       }},
      {"symm_window_register",
       {},
       [](Kit& kit) {
         symm_window* window = nullptr;
         void* pointer = nullptr;
         symm_window_data(kit.window, rank_of(kit.comm), &pointer);
         const symm_status status = symm_window_register(kit.comm, pointer, 64, nullptr, &window);
         symm_window_free(window);
         return status;
       }},
      {"symm_comm_split",
       {},
       [](Kit& kit) {
         symm_comm* out = nullptr;
         const symm_status status = symm_comm_split(kit.comm, 0, 0, nullptr, &out);
         symm_comm_free(out);
         return status;
       }},
  };
  return calls;
}

void expect_mismatch(symm_comm* comm, symm_status status, const NamedCall& one,
                     const NamedCall& other) {
  const std::string message = symm_last_error();
  EXPECT_EQ(status, SYMM_MISMATCH) << symm_status_name(status) << ": " << message;
  for (const NamedCall* call : {&one, &other}) {
    EXPECT_TRUE(mentions_all(message, {call->function}));
    for (const std::string& detail : call->details) EXPECT_TRUE(mentions_all(message, {detail}));
  }
  EXPECT_EQ(symm_comm_check(comm, nullptr), SYMM_MISMATCH);
  EXPECT_EQ(symm_comm_barrier(comm, nullptr), SYMM_MISMATCH);
}

// Crosses every pair of calls: rank 0 (and 2, ...) calls one, rank 1 the other.
void every_pair(Rank& rank) {
  const auto& calls = all_calls();
  const Comm world = create(rank, comm_options(nullptr, 20000, 20000));
  ASSERT_NE(world, nullptr);
  for (size_t i = 0; i < calls.size(); ++i) {
    for (size_t j = 0; j < calls.size(); ++j) {
      if (i == j || (rank.size > 2 && i > j)) continue;
      rank.at(calls[i].function + " against " + calls[j].function + ": " + std::to_string(i) +
              ", " + std::to_string(j));
      const Comm comm = split(world.get(), 0, rank.rank);
      const Window window = alloc(comm.get(), 4096);
      const Window other_window = alloc(comm.get(), 4096);
      Kit kit{comm.get(), window.get(), other_window.get(), std::vector<float>(60000)};
      const NamedCall& mine = calls[rank.rank == 1 ? j : i];
      SCOPED_TRACE("rank " + std::to_string(rank.rank) + ", pair " + std::to_string(i) + ", " +
                   std::to_string(j));
      const Stopwatch clock;
      const symm_status status = mine.call(kit);
      expect_mismatch(comm.get(), status, calls[i], calls[j]);
      EXPECT_LT(clock.seconds(), 3 * kSlowdown);
      if (testing::Test::HasFailure()) return;
    }
  }
  EXPECT_TRUE(adds_up(world.get()));
}

TEST(Mismatch, OfAnyTwoCallsIsToldToBothRanks) {
  RunOptions options;
  options.seconds = 60;
  run(processes(2), every_pair, options);
}

TEST(Mismatch, OfAnyTwoCallsIsToldToThreeThreads) {
  RunOptions options;
  options.seconds = 60;
  run(threads(3), every_pair, options);
}

TEST(Mismatch, IsToldToRanksThatAgreedAmongThemselves) {
  // Enough ranks for every algorithm; one of them, and not the first, calls another count.
  for (const Layout layout : {processes(5), threads(9), threads(16)}) {
    run(layout, [](Rank& rank) {
      const Comm world = create(rank, comm_options(nullptr, 20000, 20000));
      ASSERT_NE(world, nullptr);
      for (size_t count : {1, 20, 500, 40000}) {
        for (size_t wrong_count : {2, 21, 501, 40001}) {
          const Comm comm = split(world.get(), 0, rank.rank);
          std::vector<float> values(40001);
          const size_t mine = rank.rank == rank.size - 2 ? wrong_count : count;
          EXPECT_TRUE(
              fails(SYMM_MISMATCH,
                    symm_all_reduce(comm.get(), values.data(), values.data(), mine, SYMM_FLOAT32,
                                    SYMM_SUM, nullptr),
                    {"count " + std::to_string(count), "count " + std::to_string(wrong_count)}))
              << count << " against " << wrong_count;
          if (testing::Test::HasFailure()) return;
        }
      }
      EXPECT_TRUE(adds_up(world.get()));
    });
  }
}

TEST(Mismatch, OfALateRankIsToldToItToo) {
  run(processes(3), [](Rank& rank) {
    const Comm comm = create(rank, comm_options(nullptr, 20000, 20000));
    ASSERT_NE(comm, nullptr);
    std::vector<float> values(100);
    if (rank.rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    EXPECT_TRUE(fails(SYMM_MISMATCH,
                      symm_all_reduce(comm.get(), values.data(), values.data(),
                                      rank.rank == 2 ? 99 : 100, SYMM_FLOAT32, SYMM_SUM, nullptr),
                      {"count 99", "count 100"}));
  });
}

TEST(Mismatch, OfOneCallTooFewIsFoundAtTheNext) {
  run(processes(2), [](Rank& rank) {
    const Comm comm = create(rank, comm_options(nullptr, 20000, 3000));
    ASSERT_NE(comm, nullptr);
    // Rank 1 skips the barrier: the others' barrier meets its all-reduce.
    symm_status status = SYMM_OK;
    float value = 1;
    if (rank.rank == 0) status = symm_comm_barrier(comm.get(), nullptr);
    if (status == SYMM_OK) {
      status = symm_all_reduce(comm.get(), &value, &value, 1, SYMM_FLOAT32, SYMM_SUM, nullptr);
    }
    EXPECT_TRUE(fails(SYMM_MISMATCH, status, {"symm_comm_barrier", "symm_all_reduce"}));
  });
}

// So many bytes of address space, of which only those that are written to cost memory.
class Space {
 public:
  explicit Space(size_t bytes)
      : bytes_(bytes),
        start_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~Space() { munmap(start_, bytes_); }
  Space(const Space&) = delete;
  Space& operator=(const Space&) = delete;
  bool failed() const { return start_ == MAP_FAILED; }
  void* start() const { return start_; }

 private:
  size_t bytes_;
  void* start_;
};

TEST(Mismatch, OfCountsAlikeInTheirLow32BitsIsToldLikeAnyOther) {
  constexpr size_t k2To32 = size_t{1} << 32;
  // Rank for rank in turn: small against large, and two that are both large.
  for (const Layout layout : {processes(2), processes(3), threads(9)}) {
    run(layout, [](Rank& rank) {
      const Comm world = create(rank, comm_options(nullptr, 20000, 20000));
      ASSERT_NE(world, nullptr);
      for (const size_t low : {size_t{0}, size_t{2}, size_t{100000}}) {
        for (const auto& [common, other] :
             {std::pair{low, k2To32 + low}, std::pair{k2To32 + low, low},
              std::pair{k2To32 + low, 2 * k2To32 + low}}) {
          const Comm comm = split(world.get(), 0, rank.rank);
          const size_t mine = rank.rank == 1 ? other : common;
          const Space space(mine + 1);
          ASSERT_FALSE(space.failed());
          const Stopwatch clock;
          EXPECT_TRUE(fails(SYMM_MISMATCH,
                            symm_all_reduce(comm.get(), space.start(), space.start(), mine,
                                            SYMM_INT8, SYMM_SUM, nullptr),
                            {"count " + std::to_string(common), "count " + std::to_string(other)}))
              << common << " against " << other;
          EXPECT_LT(clock.seconds(), 5 * kSlowdown);
          if (testing::Test::HasFailure()) return;
        }
      }
      EXPECT_TRUE(adds_up(world.get()));
    });
  }
}

TEST(Mismatch, EndsOnlyTheCommunicatorConcerned) {
  run(processes(2), [](Rank& rank) {
    const Comm world = create(rank, comm_options(nullptr, 20000, 20000));
    ASSERT_NE(world, nullptr);
    const Comm sibling = split(world.get(), 0, 0);
    const Comm doomed = split(world.get(), 0, 0);
    const Window window = alloc(doomed.get(), 64);
    std::vector<float> values(8);
    EXPECT_TRUE(fails(SYMM_MISMATCH, symm_all_reduce(doomed.get(), values.data(), values.data(),
                                                     static_cast<size_t>(rank.rank + 1),
                                                     SYMM_FLOAT32, SYMM_SUM, nullptr)));
    EXPECT_TRUE(fails(SYMM_MISMATCH, symm_window_all_reduce(window.get(), 0, values.data(), 1,
                                                            SYMM_FLOAT32, SYMM_SUM, nullptr)));
    EXPECT_TRUE(adds_up(sibling.get()));
    EXPECT_TRUE(adds_up(world.get()));
  });
}

}  // namespace
}  // namespace symm_test
