// Several threads of one process on one communicator, and on several at once.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "capi/symm.h"
#include "tests/support/calls.h"

namespace symm_test {
namespace {

TEST(Threads, CallsOnOneCommunicatorAreSerialised) {
  run(processes(2), [](Rank& rank) {
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    // All threads of all ranks make the same calls, so any order of threads is the same order of
    // calls.
    std::atomic<int> calls{0};
    std::vector<std::thread> callers;
    for (int thread = 0; thread < 4; ++thread) {
      callers.emplace_back([&] {
        for (int round = 0; round < 2000 / kSlowdown; ++round) {
          int64_t one = 1, sum = 0;
          ASSERT_TRUE(
              ok(symm_all_reduce(comm.get(), &one, &sum, 1, SYMM_INT64, SYMM_SUM, nullptr)));
          ASSERT_EQ(sum, 2);
          ++calls;
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
    EXPECT_EQ(calls, 4 * (2000 / kSlowdown));
    EXPECT_TRUE(adds_up(comm.get()));
  });
}

TEST(Threads, WindowsAreAllocatedAndFreedByAnyOfThem) {
  run(processes(2), [](Rank& rank) {
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    std::vector<std::thread> callers;
    for (int thread = 0; thread < 3; ++thread) {
      callers.emplace_back([&] {
        for (int round = 0; round < 200 / kSlowdown; ++round) {
          const Window window = alloc(comm.get(), 4096);
          ASSERT_NE(window, nullptr);
          size_t bytes = 0;
          EXPECT_TRUE(ok(symm_window_size(window.get(), &bytes)));
          EXPECT_EQ(bytes, 4096u);
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
    EXPECT_TRUE(adds_up(comm.get()));
  });
}

TEST(Threads, CommunicatorsAreUsedAtOnceWithoutWaitingForEachOther) {
  run(mixed(2, 2), [](Rank& rank) {
    const Comm stuck = create(rank, "stuck");
    const Comm busy = create(rank, "busy");
    ASSERT_NE(busy, nullptr);
    // A thread waits in one communicator for as long as the other works.
    std::thread waiter;
    if (rank.rank != 3) {
      waiter = std::thread([&] { EXPECT_TRUE(ok(symm_comm_barrier(stuck.get(), nullptr))); });
    }
    for (int round = 0; round < 200 / kSlowdown; ++round) {
      EXPECT_TRUE(adds_up(busy.get()));
      if (round % 20 == 0) {
        const Window window = alloc(busy.get(), 512);
        const Comm part = split(busy.get(), rank.rank % 2, 0);
        EXPECT_TRUE(adds_up(part.get()));
      }
    }
    if (rank.rank == 3) {
      EXPECT_TRUE(ok(symm_comm_barrier(stuck.get(), nullptr)));
    } else {
      waiter.join();
    }
  });
}

TEST(Threads, ManyCommunicatorsWorkAtOnce) {
  run(processes(2), [](Rank& rank) {
    std::vector<std::thread> callers;
    for (int index = 0; index < 6; ++index) {
      callers.emplace_back([&rank, index] {
        const Comm comm = create(rank, ("comm " + std::to_string(index)).c_str());
        ASSERT_NE(comm, nullptr);
        const Window window = alloc(comm.get(), 8192);
        std::vector<int32_t> sum(2048);
        for (int round = 0; round < 300 / kSlowdown; ++round) {
          auto* own = data_as<int32_t>(window.get(), rank.rank);
          for (int i = 0; i < 2048; ++i) own[i] = round + i + index;
          ASSERT_TRUE(ok(symm_window_all_reduce(window.get(), 0, sum.data(), 2048, SYMM_INT32,
                                                SYMM_SUM, nullptr)));
          for (int i = 0; i < 2048; ++i)
            ASSERT_EQ(sum[static_cast<size_t>(i)], 2 * (round + i + index));
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
  });
}

TEST(Threads, GettersCheckAndReportAnswerWhileACallWaits) {
  Ranks ranks(processes(2), [](Rank& rank) {
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    const Window window = alloc(comm.get(), 64);
    if (rank.rank == 1) {
      rank.hear();  // not before all has been answered
      EXPECT_TRUE(ok(symm_comm_barrier(comm.get(), nullptr)));
      return;
    }
    std::atomic<bool> returned{false};
    std::thread waiter([&] {
      EXPECT_TRUE(ok(symm_comm_barrier(comm.get(), nullptr)));
      returned = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    for (int i = 0; i < 50; ++i) {
      EXPECT_EQ(rank_of(comm.get()), 0);
      EXPECT_EQ(size_of(comm.get()), 2);
      int32_t device = 0;
      EXPECT_TRUE(ok(symm_comm_device(comm.get(), &device)));
      EXPECT_TRUE(ok(symm_comm_check(comm.get(), nullptr)));
      size_t bytes = 0;
      EXPECT_TRUE(ok(symm_window_size(window.get(), &bytes)));
      EXPECT_NE(data(window.get(), 1), nullptr);
      std::vector<char> report(1 << 20);
      EXPECT_TRUE(ok(symm_report(comm.get(), report.data(), report.size(), &bytes)));
    }
    EXPECT_FALSE(returned) << "nothing waited, so nothing was shown";
    rank.at("answered");
    waiter.join();
  });
  ranks.wait_for(0, "answered");
  ranks.tell(1, "come");
  ranks.finish();
}

TEST(Threads, ManyMayAbortAndCheckAtOnce) {
  run(mixed(2, 2), [](Rank& rank) {
    for (int round = 0; round < 20 / kSlowdown + 1; ++round) {
      const Comm comm = create(rank, "aborted by many");
      ASSERT_NE(comm, nullptr);
      std::vector<std::thread> threads;
      for (int thread = 0; thread < 4; ++thread) {
        threads.emplace_back([&comm, thread] {
          if (thread % 2 == 0) {
            EXPECT_TRUE(ok(symm_comm_abort(comm.get())));
          }
          while (symm_comm_check(comm.get(), nullptr) == SYMM_OK) std::this_thread::yield();
          EXPECT_EQ(symm_comm_check(comm.get(), nullptr), SYMM_ABORTED);
        });
      }
      symm_status status = SYMM_OK;
      while (status == SYMM_OK) status = symm_comm_barrier(comm.get(), nullptr);
      EXPECT_EQ(status, SYMM_ABORTED) << symm_last_error();
      for (std::thread& thread : threads) thread.join();
    }
  });
}

TEST(Threads, OfOneProcessShareOneMappingOfAWindow) {
  run(threads(3), [](Rank& rank) {
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    const Window window = alloc(comm.get(), 3 * sizeof(void*));
    // Each publishes where it sees rank 0's copy: threads all see it at one place.
    auto** table = data_as<void*>(window.get(), 0);
    table[rank.rank] = table;
    EXPECT_TRUE(ok(symm_comm_barrier(comm.get(), nullptr)));
    for (int peer = 0; peer < 3; ++peer) EXPECT_EQ(table[peer], table);
    EXPECT_TRUE(ok(symm_comm_barrier(comm.get(), nullptr)));
  });
}

}  // namespace
}  // namespace symm_test
