// Ranks that die or stall, at any point: every survivor is told who, in time, and lives on.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "capi/symm.h"
#include "tests/support/calls.h"
#include "tests/support/footprint.h"
#include "tests/support/places.h"

namespace symm_test {
namespace {

// Seconds on a clock that all processes share.
double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void say_failure(const Rank& rank, const char* call, symm_status status) {
  rank.give(call);
  rank.give(symm_status_name(status));
  rank.give(symm_last_error());
  rank.give(std::to_string(now()));
}

// The survivors still are able to do everything, without the rank that died.
void goes_on_without(const Rank& rank, int victim) {
  const symm_comm_options options = comm_options("survivors", 20000, 20000);
  symm_comm* comm = nullptr;
  ASSERT_TRUE(ok(symm_comm_create(rank.address.c_str(), rank.rank - (rank.rank > victim),
                                  rank.size - 1, SYMM_CPU, &options, &comm)));
  const Comm owner(comm);
  const Window window = alloc(comm, 4096);
  EXPECT_TRUE(adds_up(comm));
  EXPECT_TRUE(ok(symm_comm_barrier(comm, nullptr)));
}

// Everything there is, for ever; returns at the first failure.
void lives_until_a_failure(const Rank& rank) {
  const symm_comm_options options = comm_options("lives", 2000, 10000);
  for (int round = 0;; ++round) {
    symm_comm* made = nullptr;
    symm_status status =
        symm_comm_create(rank.address.c_str(), rank.rank, rank.size, SYMM_CPU, &options, &made);
    const Comm comm(made);
    if (status != SYMM_OK) return say_failure(rank, "create", status);
    if (round == 0) rank.at("living");
    for (int turn = 0; turn < 5; ++turn) {
      status = symm_comm_split(comm.get(), 0, rank.rank, nullptr, &made);
      const Comm part(status == SYMM_OK ? made : nullptr);
      if (status != SYMM_OK) return say_failure(rank, "split", status);
      symm_window* allocated = nullptr;
      status = symm_window_alloc(part.get(), 4096, nullptr, &allocated);
      const Window window(allocated);
      if (status != SYMM_OK) return say_failure(rank, "alloc", status);
      std::vector<float> values(turn == 2 ? 300000 : 100, 1.0f);
      for (int call = 0; call < 20; ++call) {
        status = symm_all_reduce(part.get(), values.data(), values.data(), values.size(),
                                 SYMM_FLOAT32, SYMM_MAX, nullptr);
        if (status != SYMM_OK) return say_failure(rank, "all-reduce", status);
        status = symm_window_all_reduce(window.get(), 0, values.data(), 10, SYMM_FLOAT32, SYMM_SUM,
                                        nullptr);
        if (status != SYMM_OK) return say_failure(rank, "window all-reduce", status);
        status = symm_comm_barrier(part.get(), nullptr);
        if (status != SYMM_OK) return say_failure(rank, "barrier", status);
      }
    }
  }
}

void expect_death_was_told(const Ranks& ranks, int rank, int victim, double died) {
  const std::string call = ranks.given(rank, 0);
  const std::string status = ranks.given(rank, 1);
  const std::string message = ranks.given(rank, 2);
  const double told = std::stod("0" + ranks.given(rank, 3)) - died;
  SCOPED_TRACE("rank " + std::to_string(rank) + " in " + call + ": " + status + " after " +
               std::to_string(told) + " s: " + message);
  EXPECT_TRUE(mentions_all(message, {"rank " + std::to_string(victim)}));
  if (call == "create" && status == "SYMM_TIMEOUT") {
    // It may have died before it spoke to anyone: then only its absence can be told.
    EXPECT_LT(told, 3.5 * kSlowdown);
  } else {
    EXPECT_EQ(status, "SYMM_PEER");
    EXPECT_LT(told, 1.0 * kSlowdown);
  }
}

TEST(Death, AtAnyOfFiftyRandomPointsIsToldToEverySurvivorWithinASecond) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const int points = kThreadSanitizer ? 5 : 50 / kSlowdown;
  for (int point = 0; point < points; ++point) {
    const int size = 2 + static_cast<int>(random() % 3);
    // Rank 0, which serves the others, a little more often than its share.
    const int victim =
        random() % 4 == 0 ? 0 : static_cast<int>(random() % static_cast<unsigned>(size));
    const bool early = point % 5 == 0;  // during the first meeting or before it
    const auto delay = std::chrono::microseconds(random() % (early ? 40000 : 60000));
    RunOptions options;
    options.address = served_address();
    options.argument = std::to_string(victim);
    Ranks ranks(
        processes(size),
        [](Rank& rank) {
          lives_until_a_failure(rank);
          rank.at("told");
          rank.hear();
          goes_on_without(rank, std::stoi(rank.argument));
        },
        options);
    if (!early) ranks.wait_for(victim, "living");
    std::this_thread::sleep_for(delay);
    const double died = now();
    ranks.signal(victim, SIGKILL);
    for (int rank = 0; rank < size; ++rank) {
      if (rank != victim) ranks.wait_for(rank, "told");
    }
    ranks.tell_all("go on");
    ranks.finish();
    for (int rank = 0; rank < size; ++rank) {
      if (rank != victim) expect_death_was_told(ranks, rank, victim, died);
    }
    if (testing::Test::HasFailure()) {
      ADD_FAILURE() << "at point " << point << ", " << size << " ranks, victim " << victim;
      break;
    }
  }
}

// A survivor that has heard of the death gives up its own creation; the others must not take that
// for another death.
TEST(Death, WhileTheRanksJoinIsBlamedOnTheDeadAlone) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < (kThreadSanitizer ? 5 : 80 / kSlowdown); ++round) {
    const int victim = static_cast<int>(random() % 4);
    RunOptions options;
    options.address = served_address();
    Ranks ranks(
        processes(4),
        [](Rank& rank) {
          rank.at("creating");
          symm_comm* created = nullptr;
          const symm_comm_options chosen = comm_options(nullptr, 1000, 5000);
          symm_status status = symm_comm_create(rank.address.c_str(), rank.rank, rank.size,
                                                SYMM_CPU, &chosen, &created);
          const Comm comm(created);
          while (status == SYMM_OK) status = symm_comm_barrier(comm.get(), nullptr);
          rank.give(symm_status_name(status));
          rank.give(symm_last_error());
        },
        options);
    for (int rank = 0; rank < 4; ++rank) ranks.wait_for(rank, "creating");
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 4000));
    ranks.signal(victim, SIGKILL);
    ranks.finish();
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == victim) continue;
      SCOPED_TRACE("round " + std::to_string(round) + ", rank " + std::to_string(rank));
      ASSERT_EQ(ranks.given(rank).size(), 2u);
      EXPECT_TRUE(mentions_all(ranks.given(rank, 1), {"rank " + std::to_string(victim)}));
    }
    if (testing::Test::HasFailure()) break;
  }
}

// Blocks in `rank.argument` for what rank 1 never does; says how that ended.
void blocks_for_rank_1(Rank& rank) {
  const Comm comm = create(rank, comm_options(nullptr, 20000, 20000));
  ASSERT_NE(comm, nullptr);
  if (rank.rank == 1) {
    rank.at("idle");
    rank.hear();
    return;
  }
  rank.at("blocked");
  symm_window* window = nullptr;
  symm_comm* out = nullptr;
  int64_t value = 1;
  symm_status status = SYMM_OK;
  if (rank.argument == "alloc") status = symm_window_alloc(comm.get(), 64, nullptr, &window);
  if (rank.argument == "split") status = symm_comm_split(comm.get(), 0, 0, nullptr, &out);
  if (rank.argument == "barrier") status = symm_comm_barrier(comm.get(), nullptr);
  if (rank.argument == "all-reduce") {
    status = symm_all_reduce(comm.get(), &value, &value, 1, SYMM_INT64, SYMM_SUM, nullptr);
  }
  say_failure(rank, rank.argument.c_str(), status);
  // The end is for good, and the one to blame is known.
  int32_t blamed = -1;
  EXPECT_EQ(symm_comm_check(comm.get(), &blamed), SYMM_PEER);
  EXPECT_EQ(blamed, 1);
  EXPECT_TRUE(
      fails(SYMM_PEER, symm_comm_barrier(comm.get(), nullptr), {"symm_comm_barrier", "rank 1"}));
  EXPECT_TRUE(fails(SYMM_PEER, symm_comm_split(comm.get(), 0, 0, nullptr, &out), {"rank 1"}));
}

TEST(Death, EndsEveryKindOfWait) {
  for (const char* call : {"barrier", "all-reduce", "alloc", "split"}) {
    RunOptions options;
    options.argument = call;
    Ranks ranks(processes(4), blocks_for_rank_1, options);
    for (int rank : {0, 2, 3}) ranks.wait_for(rank, "blocked");
    ranks.wait_for(1, "idle");
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const double died = now();
    ranks.signal(1, SIGKILL);
    ranks.finish();
    for (int rank : {0, 2, 3}) expect_death_was_told(ranks, rank, 1, died);
  }
}

TEST(Death, OfAProcessOfSeveralRanksIsToldToo) {
  RunOptions options;
  options.argument = "3";
  Ranks ranks(
      mixed(3, 2),
      [](Rank& rank) {
        const Comm comm = create(rank, comm_options(nullptr, 20000, 20000));
        ASSERT_NE(comm, nullptr);
        rank.at("created");
        if (rank.process == 1) {
          rank.hear();
          return;
        }
        say_failure(rank, "barrier", symm_comm_barrier(comm.get(), nullptr));
      },
      options);
  ranks.wait_for_all("created");
  const double died = now();
  ranks.signal(2, SIGKILL);
  ranks.finish();
  for (int rank : {0, 1, 4, 5}) {
    EXPECT_EQ(ranks.given(rank, 1), "SYMM_PEER");
    const std::string message = ranks.given(rank, 2);
    EXPECT_TRUE(message.find("rank 2") != std::string::npos ||
                message.find("rank 3") != std::string::npos)
        << message;
    EXPECT_LT(std::stod("0" + ranks.given(rank, 3)) - died, 1.0 * kSlowdown);
  }
}

TEST(Death, IsSeenAlsoWhileForkedChildrenOfTheDeadLiveOn) {
  for (int victim : {0, 2}) {
    RunOptions options;
    options.argument = std::to_string(victim);
    Ranks ranks(
        processes(3),
        [](Rank& rank) {
          const Comm comm = create(rank, comm_options(nullptr, 20000, 20000));
          ASSERT_NE(comm, nullptr);
          const Window window = alloc(comm.get(), 4096);
          if (rank.rank == std::stoi(rank.argument)) {
            // Data loaders: they hold a copy of every descriptor that is not taken from them.
            for (int child = 0; child < 2; ++child) {
              if (fork() == 0) {
                alarm(60);
                while (true) pause();
              }
            }
            rank.at("ready");
            rank.hear();
            return;
          }
          rank.at("ready");
          say_failure(rank, "barrier", symm_comm_barrier(comm.get(), nullptr));
        },
        options);
    ranks.wait_for_all("ready");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const double died = now();
    ranks.signal(victim, SIGKILL);
    ranks.finish();
    for (int rank = 0; rank < 3; ++rank) {
      if (rank != victim) expect_death_was_told(ranks, rank, victim, died);
    }
  }
}

TEST(Death, OfALargeProcessIsToldWithinASecond) {
  if (kSanitized) GTEST_SKIP() << "shadow memory makes the process several times as large";
  Ranks ranks(processes(2), [](Rank& rank) {
    const Comm comm = create(rank, comm_options(nullptr, 20000, 20000));
    ASSERT_NE(comm, nullptr);
    if (rank.rank == 1) {
      std::vector<char> resident(size_t{900} << 20, 1);
      rank.at("ready");
      rank.hear();
      return;
    }
    rank.at("ready");
    say_failure(rank, "barrier", symm_comm_barrier(comm.get(), nullptr));
  });
  ranks.wait_for_all("ready");
  const double died = now();
  ranks.signal(1, SIGKILL);
  ranks.finish();
  expect_death_was_told(ranks, 0, 1, died);
}

TEST(Death, FailsExactlyTheCommunicatorsOfTheDead) {
  Ranks ranks(processes(4), [](Rank& rank) {
    const Comm world = create(rank, comm_options(nullptr, 20000, 20000));
    ASSERT_NE(world, nullptr);
    const Comm half = split(world.get(), rank.rank / 2, 0);
    rank.at("ready");
    rank.hear();  // rank 3 is told nothing: it is dead
    if (rank.rank < 2) {
      EXPECT_TRUE(adds_up(half.get()));
    } else {
      EXPECT_TRUE(fails(SYMM_PEER, symm_comm_barrier(half.get(), nullptr)));
    }
    EXPECT_TRUE(fails(SYMM_PEER, symm_comm_barrier(world.get(), nullptr), {"rank 3"}));
    if (rank.rank < 2) {
      const Comm inner = split(half.get(), 0, 0);
      EXPECT_TRUE(adds_up(inner.get()));
      EXPECT_TRUE(ok(symm_comm_barrier(half.get(), nullptr)));
    }
  });
  ranks.wait_for_all("ready");
  ranks.signal(3, SIGKILL);
  ranks.finish(3);
  ranks.tell_all("go on");
  ranks.finish();
}

TEST(Death, LeavesNothingBehindInTheSurvivors) {
  for (int victim : {0, 1}) {
    RunOptions options;
    options.address = served_address();
    options.argument = std::to_string(victim);
    Ranks ranks(
        processes(3),
        [](Rank& rank) {
          { const Comm warm_up = create(rank, "warm-up"); }
          std::this_thread::sleep_for(std::chrono::milliseconds(200));
          const Footprint before = footprint();
          {
            const Comm comm = create(rank, comm_options("doomed", 20000, 20000));
            ASSERT_NE(comm, nullptr);
            const Window window = alloc(comm.get(), 1 << 20);
            const Comm part = split(comm.get(), 0, 0);
            rank.at("ready");
            EXPECT_TRUE(rank.rank != std::stoi(rank.argument) || rank.hear().empty());
            EXPECT_TRUE(fails(SYMM_PEER, symm_comm_barrier(comm.get(), nullptr)));
          }
          EXPECT_TRUE(returns_to(before));
        },
        options);
    ranks.wait_for_all("ready");
    ranks.signal(victim, SIGKILL);
    ranks.finish();
    EXPECT_EQ(files_in(ranks.directory()), std::vector<std::string>{});
  }
}

// ---- Stalls ----

TEST(Stall, OfARankEndsTheOthersWaitAtItsDeadlineAndNamesIt) {
  for (const char* call : {"barrier", "all-reduce", "alloc"}) {
    for (int stalled : {1, 0}) {
      RunOptions options;
      options.argument = std::string(call) + std::to_string(stalled);
      Ranks ranks(
          processes(3),
          [](Rank& rank) {
            // Processes take their time to start; the deadline is for those that have.
            rank.at("started");
            rank.hear();
            const Comm comm = create(rank, comm_options(nullptr, 700, 700));
            ASSERT_NE(comm, nullptr);
            const std::string what = rank.argument.substr(0, rank.argument.size() - 1);
            const std::string stalled_rank = rank.argument.substr(what.size());
            const auto call_it = [&] {
              symm_window* window = nullptr;
              std::vector<float> values(1000, 1.0f);
              const symm_status status =
                  what == "barrier" ? symm_comm_barrier(comm.get(), nullptr)
                  : what == "alloc" ? symm_window_alloc(comm.get(), 64, nullptr, &window)
                                    : symm_all_reduce(comm.get(), values.data(), values.data(),
                                                      1000, SYMM_FLOAT32, SYMM_SUM, nullptr);
              symm_window_free(window);
              return status;
            };
            EXPECT_TRUE(ok(call_it()));
            rank.at("ready");
            rank.hear();
            const Stopwatch clock;
            const symm_status status = call_it();
            if (std::to_string(rank.rank) == stalled_rank) {
              EXPECT_NE(status, SYMM_OK) << "the others have given up";
              return;
            }
            EXPECT_TRUE(fails(SYMM_TIMEOUT, status, {"rank " + stalled_rank}));
            EXPECT_GT(clock.seconds(), 0.5 * kSlowdown);
            // Rank 0 is waited for two seconds more, in case it still can say who is missing.
            EXPECT_LT(clock.seconds(),
                      (stalled_rank == "0" && what == "alloc" ? 3.7 : 1.7) * kSlowdown);
            int32_t blamed = -1;
            EXPECT_EQ(symm_comm_check(comm.get(), &blamed), SYMM_TIMEOUT);
            EXPECT_EQ(std::to_string(blamed), stalled_rank);
            rank.at("told");
          },
          options);
      ranks.wait_for_all("started");
      ranks.tell_all("create");
      ranks.wait_for_all("ready");
      ranks.signal(stalled, SIGSTOP);
      ranks.tell_all("go on");
      for (int rank = 0; rank < 3; ++rank) {
        if (rank != stalled) ranks.wait_for(rank, "told");
      }
      ranks.signal(stalled, SIGCONT);
      ranks.finish();
    }
  }
}

}  // namespace
}  // namespace symm_test
