// Leaving is not dying: free, exit with live handles, abort.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "capi/symm.h"
#include "tests/support/calls.h"
#include "tests/support/footprint.h"

namespace symm_test {
namespace {

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

TEST(Leaving, FirstFailsNobodyWhoNeedsTheRankNoMore) {
  // Whoever is fastest leaves while others may still be inside the last call.
  run(mixed(2, 2), [](Rank& rank) {
    for (int round = 0; round < 50 / kSlowdown; ++round) {
      Comm comm = create(rank, "round");
      ASSERT_NE(comm, nullptr);
      std::vector<float> values(round % 2 == 0 ? 10 : 100000, 1.0f);
      for (int call = 0; call < 3; ++call) {
        EXPECT_TRUE(ok(symm_all_reduce(comm.get(), values.data(), values.data(), values.size(),
                                       SYMM_FLOAT32, SYMM_MAX, nullptr)));
      }
      if (rank.rank == round % rank.size) sleep_ms(5);  // a slow one, which the others leave behind
      EXPECT_TRUE(ok(symm_comm_check(comm.get(), nullptr)));
    }
  });
}

TEST(Leaving, TheProcessFirstFailsNobodyWhoNeedsItNoMore) {
  for (int round = 0; round < 10; ++round) {
    for (int first : {0, 2}) {
      RunOptions options;
      options.argument = std::to_string(first);
      run(
          processes(3),
          [](Rank& rank) {
            const Comm comm = create(rank);
            ASSERT_NE(comm, nullptr);
            const Window window = alloc(comm.get(), 4096);
            *data_as<int>(window.get(), rank.rank) = 70 + rank.rank;
            EXPECT_TRUE(ok(symm_comm_barrier(comm.get(), nullptr)));
            if (rank.rank == std::stoi(rank.argument)) return;
            sleep_ms(20);
            EXPECT_TRUE(ok(symm_comm_check(comm.get(), nullptr)));
            // Its memory outlives it here.
            for (int peer = 0; peer < rank.size; ++peer)
              EXPECT_EQ(*data_as<int>(window.get(), peer), 70 + peer);
            EXPECT_TRUE(ok(symm_comm_check(comm.get(), nullptr)));
          },
          options);
    }
  }
}

void needs_who_left(Rank& rank) {
  Comm comm = create(rank);
  ASSERT_NE(comm, nullptr);
  EXPECT_TRUE(adds_up(comm.get()));
  const std::string call = rank.argument.substr(1);
  const std::string leaver = rank.argument.substr(0, 1);
  if (std::to_string(rank.rank) == leaver) {
    comm.reset();
    sleep_ms(call.size() % 2 == 0 ? 0 : 300);  // still there as a process, or not
    return;
  }
  if (rank.rank == 1) sleep_ms(100);  // one waits already, one comes later
  const Stopwatch clock;
  symm_window* window = nullptr;
  symm_comm* out = nullptr;
  symm_status status = SYMM_OK;
  if (call == "barrier") status = symm_comm_barrier(comm.get(), nullptr);
  if (call == "alloc") status = symm_window_alloc(comm.get(), 64, nullptr, &window);
  if (call == "split") status = symm_comm_split(comm.get(), 0, 0, nullptr, &out);
  if (call == "all-reduce") {
    float value = 1;
    status = symm_all_reduce(comm.get(), &value, &value, 1, SYMM_FLOAT32, SYMM_SUM, nullptr);
  }
  EXPECT_TRUE(fails(SYMM_PEER, status, {"rank " + leaver, "left"}));
  EXPECT_LT(clock.seconds(), 2 * kSlowdown);
  int32_t blamed = -1;
  EXPECT_EQ(symm_comm_check(comm.get(), &blamed), SYMM_PEER);
  EXPECT_EQ(std::to_string(blamed), leaver);
}

TEST(Leaving, FailsTheCallsThatStillNeedTheRankAndSaysThatItLeft) {
  for (const char* call : {"barrier", "all-reduce", "alloc", "split"}) {
    for (int leaver : {0, 3}) {
      RunOptions options;
      options.argument = std::to_string(leaver) + call;
      run(processes(4), needs_who_left, options);
    }
  }
}

TEST(Leaving, ARankStaysAMemberWhileItsWindowsLive) {
  run(processes(2), [](Rank& rank) {
    Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    const Window window = alloc(comm.get(), 64);
    if (rank.rank == 1) comm.reset();
    for (int round = 0; round < 100; ++round) {
      *data_as<int>(window.get(), rank.rank) = round;
      int sum = 0;
      ASSERT_TRUE(
          ok(symm_window_all_reduce(window.get(), 0, &sum, 1, SYMM_INT32, SYMM_SUM, nullptr)));
      ASSERT_EQ(sum, 2 * round);
    }
  });
}

// ---- The end of a process ----

// Handles that outlive main and every destructor. Volatile: compilers drop what is only written.
void* volatile never_freed[64];
std::atomic<size_t> never_freed_count{0};
void never_free(void* handle) { never_freed[never_freed_count++ % 64] = handle; }

TEST(Exit, WithLiveHandlesIsClean) {
  run(mixed(2, 2), [](Rank& rank) {
    Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    Window window = alloc(comm.get(), 4096);
    Comm part = split(comm.get(), rank.rank % 2, 0);
    EXPECT_TRUE(adds_up(part.get()));
    EXPECT_TRUE(ok(symm_comm_barrier(comm.get(), nullptr)));
    never_free(comm.release());
    never_free(window.release());
    never_free(part.release());
  });
}

std::vector<Comm> kept_comms;
std::vector<Window> kept_windows;

TEST(Exit, MayFreeHandlesFromStaticDestructors) {
  run(processes(2), [](Rank& rank) {
    kept_comms.push_back(create(rank));
    ASSERT_NE(kept_comms.back(), nullptr);
    kept_windows.push_back(alloc(kept_comms.back().get(), 64));
    kept_comms.push_back(split(kept_comms.front().get(), 0, 0));
    EXPECT_TRUE(adds_up(kept_comms.back().get()));
    EXPECT_TRUE(ok(symm_comm_barrier(kept_comms.front().get(), nullptr)));
  });
}

// What frees a handle, if anything does.
enum class Fate { kFreed, kAtExitEarly, kAtExitLate, kStaticDestructor, kNever, kFates };

// Frees in the order in which it got them, comms before windows or not as that comes.
struct Leftovers {
  ~Leftovers() { free_all(); }
  void free_all() {
    for (const auto& free_one : frees) free_one();
    frees.clear();
  }
  std::vector<std::function<void()>> frees;
};
Leftovers at_static_destructors;
Leftovers* const at_exit_early = new Leftovers;
Leftovers* const at_exit_late = new Leftovers;

void exits_with_handles_in_any_state(Rank& rank) {
  std::mt19937 random(static_cast<unsigned>(std::stoul(rank.argument)) + 1000u * rank.rank);
  // Before the library's own handler, hence run after it; and the other way round.
  std::atexit([] { at_exit_early->free_all(); });
  std::vector<std::pair<void*, std::function<void()>>> handles;
  const auto keep_comm = [&](Comm comm) {
    symm_comm* const raw = comm.release();
    handles.emplace_back(raw, [raw] { symm_comm_free(raw); });
    return raw;
  };
  const auto keep_window = [&](Window window) {
    symm_window* const raw = window.release();
    handles.emplace_back(raw, [raw] { symm_window_free(raw); });
    return raw;
  };
  symm_comm* const comm = keep_comm(create(rank));
  ASSERT_NE(comm, nullptr);
  std::atexit([] { at_exit_late->free_all(); });
  symm_window* const window = keep_window(alloc(comm, 8192));
  symm_window* registered = nullptr;
  EXPECT_TRUE(ok(symm_window_register(comm, data(window, rank.rank), 4096, nullptr, &registered)));
  keep_window(Window(registered));
  symm_comm* const part = keep_comm(split(comm, rank.rank % 2, 0));
  keep_window(alloc(part, 64));
  keep_comm(create_alone());
  EXPECT_TRUE(adds_up(part));
  EXPECT_TRUE(ok(symm_comm_barrier(comm, nullptr)));
  std::shuffle(handles.begin(), handles.end(), random);
  for (auto& [handle, free_it] : handles) {
    switch (static_cast<Fate>(random() % static_cast<unsigned>(Fate::kFates))) {
      case Fate::kFreed:
        free_it();
        break;
      case Fate::kAtExitEarly:
        at_exit_early->frees.push_back(free_it);
        break;
      case Fate::kAtExitLate:
        at_exit_late->frees.push_back(free_it);
        break;
      case Fate::kStaticDestructor:
        at_static_destructors.frees.push_back(free_it);
        break;
      default:
        never_free(handle);
    }
  }
}

TEST(Exit, WithHandlesFreedEarlyLateOrNeverIsClean) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (unsigned round = 0; round < 12; ++round) {
    RunOptions options;
    options.argument = std::to_string((seed + round) % 1000000007u);
    run(processes(3), exits_with_handles_in_any_state, options);
  }
}

TEST(Exit, IsALeavingNotADeath) {
  run(processes(3), [](Rank& rank) {
    Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    EXPECT_TRUE(adds_up(comm.get()));
    if (rank.rank == 1) {
      static symm_comm* kept = nullptr;
      kept = comm.release();
      exit(kept == nullptr ? 1 : 0);
    }
    EXPECT_TRUE(fails(SYMM_PEER, symm_comm_barrier(comm.get(), nullptr), {"rank 1", "left"}));
  });
}

TEST(Exit, WithoutCleaningUpIsADeath) {
  run(processes(3), [](Rank& rank) {
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    EXPECT_TRUE(adds_up(comm.get()));
    if (rank.rank == 1) _exit(0);
    EXPECT_TRUE(fails(SYMM_PEER, symm_comm_barrier(comm.get(), nullptr), {"rank 1"}));
  });
}

TEST(Exit, WhileOtherThreadsWaitIsClean) {
  if (kThreadSanitizer) GTEST_SKIP() << "reports the threads that exit() leaves running";
  run(mixed(2, 3), [](Rank& rank) {
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    if (rank.rank == 0) {
      sleep_ms(200);
      exit(0);  // ranks 1 and 2 are inside a barrier in this process
    }
    EXPECT_NE(symm_comm_barrier(comm.get(), nullptr), SYMM_OK);
    if (rank.process == 0) sleep_ms(5000);
  });
}

// ---- Abort ----

void is_aborted_by_rank_1(Rank& rank) {
  const Comm comm = create(rank);
  ASSERT_NE(comm, nullptr);
  EXPECT_TRUE(adds_up(comm.get()));
  std::thread aborter;
  if (rank.rank == 1) {
    aborter = std::thread([&comm] {
      sleep_ms(150);
      EXPECT_TRUE(ok(symm_comm_abort(comm.get())));
    });
  }
  symm_window* window = nullptr;
  symm_comm* out = nullptr;
  symm_status status = SYMM_OK;
  const Stopwatch clock;
  if (rank.rank == 2) {
    // Never comes, and finds out later.
    while (symm_comm_check(comm.get(), nullptr) == SYMM_OK) sleep_ms(20);
    status = symm_comm_barrier(comm.get(), nullptr);
  } else if (rank.argument == "barrier") {
    status = symm_comm_barrier(comm.get(), nullptr);
  } else if (rank.argument == "alloc") {
    status = symm_window_alloc(comm.get(), 64, nullptr, &window);
  } else if (rank.argument == "split") {
    status = symm_comm_split(comm.get(), 0, 0, nullptr, &out);
  } else {
    float value = 1;
    status = symm_all_reduce(comm.get(), &value, &value, 1, SYMM_FLOAT32, SYMM_SUM, nullptr);
  }
  EXPECT_TRUE(fails(SYMM_ABORTED, status));
  EXPECT_LT(clock.seconds(), 1.5 * kSlowdown);
  if (rank.rank != 1) {
    EXPECT_TRUE(mentions_all(symm_last_error(), {"rank 1"}));
  }
  EXPECT_EQ(symm_comm_check(comm.get(), nullptr), SYMM_ABORTED);
  EXPECT_TRUE(fails(SYMM_ABORTED, symm_comm_barrier(comm.get(), nullptr)));
  EXPECT_TRUE(ok(symm_comm_abort(comm.get())));  // once more does no harm
  if (aborter.joinable()) aborter.join();
  sleep_ms(100);  // nobody leaves before the others have seen the abort
}

TEST(Abort, FromAnotherThreadEndsEveryWaitOnEveryRank) {
  for (const char* call : {"barrier", "all-reduce", "alloc", "split"}) {
    for (const Layout layout : {processes(4), mixed(2, 2)}) {
      RunOptions options;
      options.argument = call;
      run(layout, is_aborted_by_rank_1, options);
    }
  }
}

TEST(Abort, AndFreeByOneRankStillEndsTheWaitsOfOthers) {
  run(processes(3), [](Rank& rank) {
    Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    if (rank.rank == 0) {
      sleep_ms(100);
      EXPECT_TRUE(ok(symm_comm_abort(comm.get())));
      return;  // frees and exits at once
    }
    EXPECT_TRUE(fails(SYMM_ABORTED, symm_comm_barrier(comm.get(), nullptr), {"rank 0"}));
  });
}

TEST(Abort, LeavesNothingBehindAndThePlaceFree) {
  run(processes(2), [](Rank& rank) {
    { const Comm warm_up = create(rank, "warm-up"); }
    sleep_ms(200);
    const Footprint before = footprint();
    for (int round = 0; round < 20; ++round) {
      const Comm comm = create(rank, "aborted");
      ASSERT_NE(comm, nullptr) << round;
      const Window window = alloc(comm.get(), 4096);
      EXPECT_TRUE(ok(symm_comm_abort(comm.get())));
      EXPECT_TRUE(fails(SYMM_ABORTED, symm_comm_barrier(comm.get(), nullptr)));
    }
    EXPECT_TRUE(returns_to(before));
  });
}

}  // namespace
}  // namespace symm_test
