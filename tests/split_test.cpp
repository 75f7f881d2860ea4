// symm_comm_split: who is in which group, and that groups owe each other nothing.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "capi/symm.h"
#include "tests/support/calls.h"
#include "tests/support/footprint.h"

namespace symm_test {
namespace {

TEST(Split, RanksByKeyAndThenByOldRank) {
  run(processes(6), [](Rank& rank) {
    const Comm world = create(rank);
    ASSERT_NE(world, nullptr);
    // Keys fall, so ranks turn round; equal keys keep the old order.
    const Comm reversed = split(world.get(), 7, -rank.rank);
    EXPECT_EQ(rank_of(reversed.get()), 5 - rank.rank);
    EXPECT_EQ(size_of(reversed.get()), 6);
    const Comm paired = split(world.get(), rank.rank % 2 == 0 ? 1000000 : 0, 42);
    EXPECT_EQ(rank_of(paired.get()), rank.rank / 2);
    EXPECT_EQ(size_of(paired.get()), 3);
    const Comm extremes = split(world.get(), 0, rank.rank == 0 ? INT32_MAX : INT32_MIN);
    EXPECT_EQ(rank_of(extremes.get()), rank.rank == 0 ? 5 : rank.rank - 1);
    for (const Comm* comm : {&reversed, &paired, &extremes}) EXPECT_TRUE(adds_up(comm->get()));
  });
}

TEST(Split, NoColorJoinsNothingAndGetsNull) {
  run(mixed(2, 2), [](Rank& rank) {
    const Comm world = create(rank);
    ASSERT_NE(world, nullptr);
    symm_comm* some = world.get();  // must become null
    const bool in = rank.rank == 1 || rank.rank == 2;
    EXPECT_TRUE(ok(symm_comm_split(world.get(), in ? 3 : int{SYMM_NO_COLOR}, 0, nullptr, &some)));
    EXPECT_EQ(some != nullptr, in);
    const Comm owner(some);
    if (in) {
      EXPECT_EQ(size_of(some), 2);
      EXPECT_TRUE(adds_up(some));
    }
    symm_comm* none = world.get();
    EXPECT_TRUE(ok(symm_comm_split(world.get(), SYMM_NO_COLOR, 0, nullptr, &none)));
    EXPECT_EQ(none, nullptr);
    EXPECT_TRUE(adds_up(world.get()));
  });
}

TEST(Split, ASubgroupRendezvousLeavesTheWorldAlone) {
  run(processes(4), [](Rank& rank) {
    const Comm world = create(rank);
    ASSERT_NE(world, nullptr);
    const Comm first = alloc(world.get(), 64) ? split(world.get(), rank.rank / 2, 0) : nullptr;
    ASSERT_NE(first, nullptr);
    for (int round = 0; round < 10; ++round) {
      // Group 0 does more set-up than group 1, which the world must not notice.
      for (int extra = 0; extra < (rank.rank < 2 ? 5 : 1); ++extra) {
        const Window window = alloc(first.get(), 1024);
        const Comm inner = split(first.get(), 0, 0);
        EXPECT_TRUE(adds_up(inner.get()));
      }
      const Window window = alloc(world.get(), 64);
      const Comm next = split(world.get(), rank.rank % 2, 0);
      EXPECT_TRUE(adds_up(next.get()));
      EXPECT_TRUE(adds_up(world.get()));
    }
  });
}

TEST(Split, OfASplitOfASplitWorksDownToOne) {
  run(mixed(4, 2), [](Rank& rank) {
    std::vector<Comm> chain;
    chain.push_back(create(rank));
    ASSERT_NE(chain.back(), nullptr);
    for (int size = 8; size > 1; size /= 2) {
      const int here = rank_of(chain.back().get());
      chain.push_back(split(chain.back().get(), here / (size / 2), here));
      ASSERT_NE(chain.back(), nullptr);
      EXPECT_EQ(size_of(chain.back().get()), size / 2);
    }
    for (const Comm& comm : chain) EXPECT_TRUE(adds_up(comm.get()));
  });
}

TEST(Split, TheParentMayBeFreedFirst) {
  run(processes(4), [](Rank& rank) {
    Comm world = create(rank);
    ASSERT_NE(world, nullptr);
    const Comm half = split(world.get(), rank.rank / 2, 0);
    const Window window = alloc(half.get(), 4096);
    world.reset();
    EXPECT_TRUE(adds_up(half.get()));
    const Comm quarter = split(half.get(), rank.rank, 0);
    EXPECT_TRUE(adds_up(quarter.get()));
    EXPECT_TRUE(ok(symm_comm_barrier(half.get(), nullptr)));
  });
}

TEST(Split, AnAbortStaysInItsCommunicator) {
  run(processes(4), [](Rank& rank) {
    const Comm world = create(rank);
    ASSERT_NE(world, nullptr);
    const Comm half = split(world.get(), rank.rank / 2, 0);
    const Comm other = split(world.get(), rank.rank % 2, 0);
    if (rank.rank == 0) {
      EXPECT_TRUE(ok(symm_comm_abort(half.get())));
    }
    if (rank.rank < 2) {
      EXPECT_TRUE(fails(SYMM_ABORTED, symm_comm_barrier(half.get(), nullptr)));
    } else {
      EXPECT_TRUE(adds_up(half.get()));
    }
    EXPECT_TRUE(adds_up(world.get()));
    EXPECT_TRUE(adds_up(other.get()));
    // And from the parent to none of its children.
    if (rank.rank == 3) {
      EXPECT_TRUE(ok(symm_comm_abort(world.get())));
    }
    EXPECT_TRUE(fails(SYMM_ABORTED, symm_comm_barrier(world.get(), nullptr)));
    EXPECT_TRUE(adds_up(other.get()));
    const Comm inner = split(other.get(), 0, 0);
    EXPECT_TRUE(adds_up(inner.get()));
  });
}

TEST(Split, OptionsOfZeroAreTheParents) {
  Ranks ranks(processes(2), [](Rank& rank) {
    const Comm world = create(rank, comm_options("world", 1500, 700));
    ASSERT_NE(world, nullptr);
    const Comm same = split(world.get(), 0, 0);
    const symm_comm_options options = comm_options("", 0, 200);
    const Comm impatient = split(world.get(), 0, 0, &options);
    if (rank.rank == 1) {
      rank.hear();
      return;
    }
    // Messages tell the bound that applied; a busy machine may be late with either.
    const auto within = [](int ms) { return std::to_string(ms * kSlowdown) + " ms"; };
    const Stopwatch clock;
    EXPECT_TRUE(
        fails(SYMM_TIMEOUT, symm_comm_barrier(impatient.get(), nullptr), {"rank 1", within(200)}));
    const double first = clock.seconds();
    EXPECT_GE(first, 0.19 * kSlowdown);
    EXPECT_LE(first, 1.5 * kSlowdown);
    EXPECT_TRUE(
        fails(SYMM_TIMEOUT, symm_comm_barrier(same.get(), nullptr), {"rank 1", within(700)}));
    EXPECT_GE(clock.seconds() - first, 0.69 * kSlowdown);
    EXPECT_LE(clock.seconds() - first, 2.0 * kSlowdown);
  });
  ranks.finish(0);
  ranks.tell(1, "go");
  ranks.finish();
}

TEST(Split, DifferentOptionsFailEveryRank) {
  run(processes(3), [](Rank& rank) {
    const Comm world = create(rank);
    ASSERT_NE(world, nullptr);
    const symm_comm_options options = comm_options("", 0, rank.rank == 2 ? 1000 : 2000);
    symm_comm* out = nullptr;
    EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT, symm_comm_split(world.get(), 0, 0, &options, &out),
                      {"symm_comm_split", "wait_timeout_ms", "rank 2"}));
    EXPECT_EQ(out, nullptr);
    EXPECT_TRUE(adds_up(world.get()));
  });
}

TEST(Split, ManyTimesLeavesNothingBehind) {
  run(mixed(2, 2), [](Rank& rank) {
    const Comm world = create(rank);
    ASSERT_NE(world, nullptr);
    { const Comm warm_up = split(world.get(), 0, 0); }
    EXPECT_TRUE(ok(symm_comm_barrier(world.get(), nullptr)));
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const Footprint before = footprint();
    EXPECT_TRUE(ok(symm_comm_barrier(world.get(), nullptr)));
    for (int round = 0; round < 300 / kSlowdown; ++round) {
      const Comm part = split(world.get(), (rank.rank + round) % 3, 0);
      EXPECT_TRUE(adds_up(part.get()));
    }
    EXPECT_TRUE(ok(symm_comm_barrier(world.get(), nullptr)));
    EXPECT_TRUE(returns_to(before));
    EXPECT_TRUE(ok(symm_comm_barrier(world.get(), nullptr)));
  });
}

}  // namespace
}  // namespace symm_test
