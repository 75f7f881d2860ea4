// Ranks on different hosts, which network name spaces stand for: what works there, and what is said
// of what does not.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "capi/symm.h"
#include "tests/support/calls.h"
#include "tests/support/hosts.h"
#include "tests/support/places.h"

namespace symm_test {
namespace {

class Hosts : public testing::Test {
 protected:
  void SetUp() override {
    if (!hosts.lacking.empty()) GTEST_SKIP() << hosts.lacking;
  }

  // Even processes on the left, odd ones on the right; rank 0 serves on the left.
  RunOptions options(const std::string& argument = "") const {
    RunOptions result;
    result.address = "tcp://" + hosts.left_address + ":" + std::to_string(20000 + getpid() % 10000);
    result.argument = argument;
    result.network = [this](int process) { return process % 2 == 0 ? hosts.left : hosts.right; };
    return result;
  }

  const TwoHosts hosts;
};

TEST_F(Hosts, CreateSplitAndBarrierWorkAcrossThem) {
  for (const Layout layout : {processes(2), processes(4), mixed(2, 2)}) {
    run(
        layout,
        [](Rank& rank) {
          const Comm world = create(rank);
          ASSERT_NE(world, nullptr);
          EXPECT_EQ(rank_of(world.get()), rank.rank);
          for (int i = 0; i < 50; ++i) EXPECT_TRUE(ok(symm_comm_barrier(world.get(), nullptr)));
          const Comm reversed = split(world.get(), 0, -rank.rank);
          EXPECT_EQ(rank_of(reversed.get()), rank.size - 1 - rank.rank);
          EXPECT_TRUE(ok(symm_comm_barrier(reversed.get(), nullptr)));
          EXPECT_TRUE(ok(symm_comm_barrier(world.get(), nullptr)));
          EXPECT_TRUE(ok(symm_comm_check(world.get(), nullptr)));
        },
        options());
  }
}

TEST_F(Hosts, ABarrierWaitsForTheSlowestOfThem) {
  const auto given = run(
      processes(2),
      [](Rank& rank) {
        const Comm comm = create(rank);
        ASSERT_NE(comm, nullptr);
        EXPECT_TRUE(ok(symm_comm_barrier(comm.get(), nullptr)));
        if (rank.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
        // By a clock that all processes of the machine share.
        const auto now = [] { return std::chrono::steady_clock::now().time_since_epoch().count(); };
        rank.give(std::to_string(now()));
        EXPECT_TRUE(ok(symm_comm_barrier(comm.get(), nullptr)));
        rank.give(std::to_string(now()));
      },
      options());
  for (const auto& of_rank : given) ASSERT_EQ(of_rank.size(), 2u);
  EXPECT_GE(std::stoll(given[0][1]), std::stoll(given[1][0]));
}

TEST_F(Hosts, WindowsAndAllReducesAreUnsupportedAtOnceOnEveryRankAndNotForGood) {
  Ranks ranks(
      processes(3),
      [](Rank& rank) {
        const Comm comm = create(rank);
        ASSERT_NE(comm, nullptr);
        float value = 1;
        symm_window* window = nullptr;
        if (rank.rank == 1) rank.hear();  // not before the others have been told
        EXPECT_TRUE(
            fails(SYMM_UNSUPPORTED,
                  symm_all_reduce(comm.get(), &value, &value, 1, SYMM_FLOAT32, SYMM_SUM, nullptr),
                  {"symm_all_reduce", "host"}));
        EXPECT_TRUE(fails(SYMM_UNSUPPORTED, symm_window_alloc(comm.get(), 64, nullptr, &window),
                          {"symm_window_alloc", "host"}));
        EXPECT_TRUE(fails(SYMM_UNSUPPORTED,
                          symm_window_register(comm.get(), &value, 4, nullptr, &window),
                          {"symm_window_register", "host"}));
        EXPECT_EQ(window, nullptr);
        EXPECT_EQ(value, 1);
        rank.at("told");
        EXPECT_TRUE(ok(symm_comm_check(comm.get(), nullptr)));
        EXPECT_TRUE(ok(symm_comm_barrier(comm.get(), nullptr)));
      },
      options());
  ranks.wait_for(0, "told");
  ranks.wait_for(2, "told");
  ranks.tell(1, "come");
  ranks.finish();
}

TEST_F(Hosts, ASubgroupOfOneHostHasWindowsAndAllReduces) {
  run(
      processes(4),
      [](Rank& rank) {
        const Comm world = create(rank);
        ASSERT_NE(world, nullptr);
        const Comm local = split(world.get(), rank.rank % 2, 0);
        const Window window = alloc(local.get(), 4096);
        ASSERT_NE(window, nullptr);
        EXPECT_TRUE(adds_up(local.get()));
        EXPECT_TRUE(ok(symm_comm_barrier(world.get(), nullptr)));
      },
      options());
}

TEST_F(Hosts, ADeathOnOneIsToldOnTheOther) {
  for (int victim : {0, 1}) {
    Ranks ranks(
        processes(3),
        [](Rank& rank) {
          const Comm comm = create(rank);
          ASSERT_NE(comm, nullptr);
          rank.at("ready");
          if (std::to_string(rank.rank) == rank.argument) rank.hear();
          EXPECT_TRUE(
              fails(SYMM_PEER, symm_comm_barrier(comm.get(), nullptr), {"rank " + rank.argument}));
        },
        options(std::to_string(victim)));
    ranks.wait_for_all("ready");
    const Stopwatch clock;
    ranks.signal(victim, SIGKILL);
    ranks.finish();
    EXPECT_LT(clock.seconds(), 1.5 * kSlowdown);
  }
}

TEST_F(Hosts, LeavingAndAbortReachTheOther) {
  run(
      processes(2),
      [](Rank& rank) {
        Comm first = create(rank, "left");
        Comm second = create(rank, "aborted");
        ASSERT_NE(second, nullptr);
        if (rank.rank == 1) {
          first.reset();
          EXPECT_TRUE(ok(symm_comm_abort(second.get())));
        } else {
          EXPECT_TRUE(
              fails(SYMM_PEER, symm_comm_barrier(first.get(), nullptr), {"rank 1", "left"}));
          EXPECT_TRUE(fails(SYMM_ABORTED, symm_comm_barrier(second.get(), nullptr), {"rank 1"}));
        }
      },
      options());
}

TEST_F(Hosts, MismatchedCallsAreToldAcrossThem) {
  run(
      processes(2),
      [](Rank& rank) {
        const Comm comm = create(rank);
        ASSERT_NE(comm, nullptr);
        symm_comm* out = nullptr;
        const symm_status status = rank.rank == 0
                                       ? symm_comm_barrier(comm.get(), nullptr)
                                       : symm_comm_split(comm.get(), 0, 0, nullptr, &out);
        EXPECT_TRUE(fails(SYMM_MISMATCH, status, {"symm_comm_barrier", "symm_comm_split"}));
      },
      options());
}

TEST_F(Hosts, ACutWireEndsTheWaitAtItsDeadline) {
  Ranks ranks(
      processes(2),
      [](Rank& rank) {
        const Comm comm = create(rank, comm_options(nullptr, 10000, 1000));
        ASSERT_NE(comm, nullptr);
        rank.at("ready");
        rank.hear();
        const Stopwatch clock;
        const symm_status status = symm_comm_barrier(comm.get(), nullptr);
        EXPECT_TRUE(status == SYMM_TIMEOUT || status == SYMM_PEER) << symm_status_name(status);
        EXPECT_LT(clock.seconds(), 4 * kSlowdown);
        EXPECT_TRUE(mentions_all(symm_last_error(), {"rank " + std::to_string(1 - rank.rank)}));
      },
      options());
  ranks.wait_for_all("ready");
  ASSERT_EQ(shell(hosts.cut), 0);
  ranks.tell_all("go on");
  ranks.finish();
}

TEST_F(Hosts, AHostThatCannotBeReachedIsToldWithinTheDeadline) {
  shell(hosts.cut);
  run(
      processes(2),
      [](Rank& rank) {
        const symm_comm_options chosen = comm_options(nullptr, 1000);
        symm_comm* comm = nullptr;
        const Stopwatch clock;
        EXPECT_TRUE(fails(
            SYMM_TIMEOUT,
            symm_comm_create(rank.address.c_str(), rank.rank, rank.size, SYMM_CPU, &chosen, &comm),
            {"rank " + std::to_string(1 - rank.rank)}));
        EXPECT_LT(clock.seconds(), 2.5 * kSlowdown);
      },
      options());
}

}  // namespace
}  // namespace symm_test
