// How ranks find each other when all is well.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "capi/symm.h"
#include "tests/support/calls.h"
#include "tests/support/footprint.h"
#include "tests/support/places.h"

namespace symm_test {
namespace {

// Every kind of address, by name.
std::string address_of_kind(const std::string& kind, const Directory& directory) {
  if (kind == "tcp") return local_address();
  if (kind == "file") return "file://" + directory.file("meeting");
  return served_address();
}

void meets_and_adds_up(Rank& rank) {
  const Comm comm = create(rank);
  ASSERT_NE(comm, nullptr);
  EXPECT_EQ(rank_of(comm.get()), rank.rank);
  EXPECT_EQ(size_of(comm.get()), rank.size);
  EXPECT_TRUE(adds_up(comm.get()));
  EXPECT_TRUE(ok(symm_comm_barrier(comm.get(), nullptr)));
}

struct Meeting {
  const char* kind;
  Layout layout;
};

class RendezvousOver : public testing::TestWithParam<Meeting> {};

TEST_P(RendezvousOver, TheAddressGivesEveryRankItsCommunicator) {
  const Directory directory;
  RunOptions options;
  options.address = address_of_kind(GetParam().kind, directory);
  run(GetParam().layout, meets_and_adds_up, options);
  EXPECT_EQ(files_in(directory.path()), std::vector<std::string>{}) << "left behind";
}

INSTANTIATE_TEST_SUITE_P(
    EveryAddress, RendezvousOver,
    testing::Values(Meeting{"tcp", processes(1)}, Meeting{"tcp", processes(2)},
                    Meeting{"tcp", processes(3)}, Meeting{"tcp", threads(4)},
                    Meeting{"tcp", mixed(2, 4)}, Meeting{"tcp", processes(16)},
                    Meeting{"file", processes(2)}, Meeting{"file", threads(3)},
                    Meeting{"file", mixed(4, 2)}, Meeting{"file", processes(8)},
                    Meeting{"served", processes(1)}, Meeting{"served", processes(4)},
                    Meeting{"served", threads(8)}, Meeting{"served", mixed(4, 4)}),
    [](const auto& test) {
      return std::string(test.param.kind) + "_" + std::to_string(test.param.layout.processes) +
             "x" + std::to_string(test.param.layout.threads);
    });

TEST(Rendezvous, BringsSixtyFourRanksTogether) {
  for (const Layout layout : {processes(64), threads(64), mixed(8, 8)}) {
    if (kSanitized && layout.processes == 64) continue;  // minutes of start-up alone
    RunOptions options;
    options.seconds = 60;
    options.address = local_address();
    run(layout, meets_and_adds_up, options);
  }
}

TEST(Rendezvous, AnyOrderOfArrivalWillDo) {
  for (const char* kind : {"tcp", "file", "served"}) {
    for (const std::vector<int>& order :
         std::vector<std::vector<int>>{{2, 1, 0}, {1, 0, 2}, {0, 2, 1}}) {
      const Directory directory;
      RunOptions options;
      options.address = address_of_kind(kind, directory);
      Ranks ranks(
          processes(3),
          [](Rank& rank) {
            rank.at("the gate");
            rank.hear();
            rank.at("symm_comm_create");
            meets_and_adds_up(rank);
          },
          options);
      for (int rank : order) {
        ranks.wait_for(rank, "the gate");
        ranks.tell(rank, "go");
        ranks.wait_for(rank, "symm_comm_create");
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
      ranks.finish();
    }
  }
}

TEST(Rendezvous, TheFirstCallOfAProcessMayBeAWindow) {
  run(mixed(2, 2), [](Rank& rank) {
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    // One rank comes late to it: the others wait in their very first call.
    if (rank.rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const Window window = alloc(comm.get(), 4);
    ASSERT_NE(window, nullptr);
    *data_as<int>(window.get(), rank.rank) = rank.rank + 10;
    EXPECT_TRUE(ok(symm_comm_barrier(comm.get(), nullptr)));
    for (int peer = 0; peer < rank.size; ++peer) {
      EXPECT_EQ(*data_as<int>(window.get(), peer), peer + 10);
    }
    EXPECT_TRUE(ok(symm_comm_barrier(comm.get(), nullptr)));
  });
}

TEST(Rendezvous, TheFirstCallOfAProcessMayBeASubgroupsWindow) {
  run(processes(4), [](Rank& rank) {
    const Comm world = create(rank);
    ASSERT_NE(world, nullptr);
    const Comm half = split(world.get(), rank.rank / 2, rank.rank);
    const Window window = alloc(half.get(), 256);
    *data_as<int>(window.get(), rank_of(half.get())) = 1;
    int sum = 0;
    EXPECT_TRUE(
        ok(symm_window_all_reduce(window.get(), 0, &sum, 1, SYMM_INT32, SYMM_SUM, nullptr)));
    EXPECT_EQ(sum, 2);
    EXPECT_TRUE(adds_up(world.get()));
  });
}

TEST(Rendezvous, NamesKeepCommunicatorsApartThatAreCreatedAtOnce) {
  for (const char* kind : {"tcp", "file", "served"}) {
    const Directory directory;
    RunOptions options;
    options.address = address_of_kind(kind, directory);
    run(
        processes(3),
        [](Rank& rank) {
          // In threads, so that all meetings are open together and in no order.
          std::vector<std::thread> creators;
          for (const char* name : {"first", "second", "third", "fourth"}) {
            creators.emplace_back([&rank, name] {
              const Comm comm = create(rank, name);
              ASSERT_NE(comm, nullptr) << name;
              EXPECT_TRUE(adds_up(comm.get()));
              EXPECT_TRUE(ok(symm_comm_barrier(comm.get(), nullptr)));
            });
          }
          for (std::thread& creator : creators) creator.join();
        },
        options);
  }
}

TEST(Rendezvous, MayRepeatUnderOneNameAfterFreeAndBefore) {
  for (const char* kind : {"tcp", "file", "served"}) {
    const Directory directory;
    RunOptions options;
    options.address = address_of_kind(kind, directory);
    run(
        processes(3),
        [](Rank& rank) {
          for (int round = 0; round < 20; ++round) {
            const Comm comm = create(rank, "again");
            ASSERT_NE(comm, nullptr) << "round " << round;
            EXPECT_TRUE(adds_up(comm.get()));
          }
          const Comm first = create(rank, "again");
          const Comm second = create(rank, "again");
          ASSERT_NE(second, nullptr);
          EXPECT_TRUE(adds_up(second.get()));
          EXPECT_TRUE(adds_up(first.get()));
        },
        options);
  }
}

TEST(Rendezvous, NeedsNoSecondRankForAWorldOfOneEvenTwiceAtOneAddress) {
  const std::string address = local_address();
  symm_comm* first = nullptr;
  symm_comm* second = nullptr;
  EXPECT_TRUE(ok(symm_comm_create(address.c_str(), 0, 1, SYMM_CPU, nullptr, &first)));
  EXPECT_TRUE(ok(symm_comm_create(address.c_str(), 0, 1, SYMM_CPU, nullptr, &second)));
  EXPECT_TRUE(adds_up(first));
  symm_comm_free(first);
  EXPECT_TRUE(adds_up(second));
  symm_comm_free(second);
}

TEST(Rendezvous, AServedAddressOutlivesNobodyAndServesManyJobsOfDifferentSizes) {
  RunOptions options;
  options.address = served_address();
  for (int size : {2, 5, 1, 3}) run(processes(size), meets_and_adds_up, options);
}

TEST(Rendezvous, LeavesThePortToOthersWhenItIsOver) {
  const int port = free_port();
  RunOptions options;
  options.address = "tcp://127.0.0.1:" + std::to_string(port);
  Ranks ranks(
      processes(2),
      [](Rank& rank) {
        const Comm comm = create(rank);
        rank.at("met");
        rank.hear();
        EXPECT_TRUE(adds_up(comm.get()));
      },
      options);
  ranks.wait_for_all("met");
  const Stopwatch clock;
  int refused = -1;
  do {
    refused = connect_to(port);
    if (refused >= 0) close(refused);
  } while (refused >= 0 && clock.seconds() < 5 * kSlowdown);
  EXPECT_LT(refused, 0) << "the port is still served though every rank has come";
  ranks.tell_all("go on");
  ranks.finish();
}

TEST(Rendezvous, IPv6AndHostNamesAreAddressesToo) {
  for (const std::string host : {"localhost", "[::1]"}) {
    RunOptions options;
    options.address = "tcp://" + host + ":" + std::to_string(free_port());
    run(processes(2), meets_and_adds_up, options);
  }
}

TEST(Rendezvous, LeavesNoDescriptorThreadMappingOrSocketBehind) {
  run(processes(3), [](Rank& rank) {
    { const Comm warm_up = create(rank, "warm-up"); }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const Footprint before = footprint();
    for (int round = 0; round < 100 / kSlowdown; ++round) {
      const Comm comm = create(rank, "round");
      ASSERT_NE(comm, nullptr);
      const Comm part = split(comm.get(), rank.rank % 2, 0);
      EXPECT_TRUE(adds_up(part.get()));
    }
    EXPECT_TRUE(returns_to(before));
  });
}

}  // namespace
}  // namespace symm_test
