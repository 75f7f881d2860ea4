// Windows allocated by the library: what every rank sees, and what is left when they are gone.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "capi/symm.h"
#include "tests/support/calls.h"
#include "tests/support/footprint.h"
#include "tests/support/reference.h"

namespace symm_test {
namespace {

const std::vector<Layout> kLayouts = {processes(3), threads(4), mixed(2, 2)};

// After this every rank's stores are seen, and every rank has seen them.
void barrier(symm_comm* comm) { EXPECT_TRUE(ok(symm_comm_barrier(comm, nullptr))); }

TEST(Windows, StartZeroedAndAlignedEveryTime) {
  for (const Layout layout : kLayouts) {
    run(layout, [](Rank& rank) {
      const Comm comm = create(rank);
      ASSERT_NE(comm, nullptr);
      // Freed memory comes back: it must be zero again.
      for (size_t bytes : {4, 100, 4096, 5000, 1 << 20, 4, 100, 4096, 5000, 1 << 20, 3 << 20}) {
        const Window window = alloc(comm.get(), bytes);
        ASSERT_NE(window, nullptr);
        size_t size = 0;
        EXPECT_TRUE(ok(symm_window_size(window.get(), &size)));
        EXPECT_EQ(size, bytes);
        for (int peer = 0; peer < rank.size; ++peer) {
          const auto* bytes_of_peer = data_as<unsigned char>(window.get(), peer);
          EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes_of_peer) % 256, 0u);
          EXPECT_TRUE(std::all_of(bytes_of_peer, bytes_of_peer + bytes,
                                  [](unsigned char b) { return b == 0; }))
              << bytes << " bytes of rank " << peer;
        }
        barrier(comm.get());
        std::memset(data(window.get(), rank.rank), 0xee, bytes);
        barrier(comm.get());
      }
    });
  }
}

TEST(Windows, EveryRankSeesEveryRanksStoresAfterABarrier) {
  for (const Layout layout : kLayouts) {
    run(layout, [](Rank& rank) {
      const Comm comm = create(rank);
      ASSERT_NE(comm, nullptr);
      constexpr size_t kWords = 10000;
      const Window window = alloc(comm.get(), kWords * 8);
      std::vector<uint64_t*> slices;
      for (int peer = 0; peer < rank.size; ++peer)
        slices.push_back(data_as<uint64_t>(window.get(), peer));
      for (uint64_t round = 0; round < 20; ++round) {
        // Into the own copy in even rounds, into the next rank's in odd ones.
        const auto writer = static_cast<size_t>(rank.rank);
        const size_t target = (writer + round % 2) % slices.size();
        for (size_t i = 0; i < kWords; ++i) slices[target][i] = mix(round * 100 + target) + i;
        barrier(comm.get());
        for (size_t peer = 0; peer < slices.size(); ++peer) {
          const uint64_t first = mix(round * 100 + peer);
          for (size_t i = 0; i < kWords; ++i)
            ASSERT_EQ(slices[peer][i], first + i) << "rank " << peer << ", " << i;
        }
        barrier(comm.get());
      }
    });
  }
}

TEST(Windows, OfNoBytesAreWindowsToo) {
  run(mixed(2, 2), [](Rank& rank) {
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    const Window window = alloc(comm.get(), 0);
    ASSERT_NE(window, nullptr);
    size_t size = 1;
    EXPECT_TRUE(ok(symm_window_size(window.get(), &size)));
    EXPECT_EQ(size, 0u);
    EXPECT_TRUE(
        ok(symm_window_all_reduce(window.get(), 0, nullptr, 0, SYMM_FLOAT32, SYMM_SUM, nullptr)));
    float out = 3;
    EXPECT_TRUE(
        fails(SYMM_INVALID_ARGUMENT,
              symm_window_all_reduce(window.get(), 0, &out, 1, SYMM_FLOAT32, SYMM_SUM, nullptr)));
    EXPECT_EQ(out, 3);
    EXPECT_TRUE(adds_up(comm.get()));
  });
}

TEST(Windows, DoNotOverlapEachOther) {
  run(processes(2), [](Rank& rank) {
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    std::vector<Window> windows;
    const std::vector<size_t> sizes = {4, 4, 256, 1, 4096, 7, 300, 70000};
    for (size_t bytes : sizes) windows.push_back(alloc(comm.get(), bytes));
    for (size_t i = 0; i < sizes.size(); ++i) {
      std::memset(data(windows[i].get(), rank.rank), static_cast<int>(16 * rank.rank + i + 1),
                  sizes[i]);
    }
    barrier(comm.get());
    for (int peer = 0; peer < 2; ++peer) {
      for (size_t i = 0; i < sizes.size(); ++i) {
        const auto* bytes = data_as<unsigned char>(windows[i].get(), peer);
        EXPECT_TRUE(std::all_of(
            bytes, bytes + sizes[i],
            [&](unsigned char b) { return b == 16 * static_cast<unsigned>(peer) + i + 1; }))
            << "window " << i << " of rank " << peer;
      }
    }
    barrier(comm.get());
  });
}

TEST(Windows, AreFreedInAnyOrderThatMayDifferBetweenRanks) {
  run(mixed(2, 2), [](Rank& rank) {
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    std::mt19937 random(static_cast<unsigned>(rank.rank));
    for (int round = 0; round < 10; ++round) {
      std::vector<Window> windows;
      for (int i = 0; i < 10; ++i) {
        windows.push_back(alloc(comm.get(), static_cast<size_t>(1) << (2 * i)));
        *data_as<char>(windows.back().get(), rank.rank) = static_cast<char>(rank.rank + i);
      }
      barrier(comm.get());
      std::shuffle(windows.begin(), windows.end(), random);
      windows.resize(5);  // frees some here, others there
      EXPECT_TRUE(adds_up(comm.get()));
      const Window next = alloc(comm.get(), 1000);
      EXPECT_EQ(*data_as<char>(next.get(), (rank.rank + 1) % rank.size), 0);
      barrier(comm.get());
    }
  });
}

TEST(Windows, ASmallOneCostsAPeerFarLessThanTwoMebibytes) {
  run(processes(4), [](Rank& rank) {
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    { const Window warm_up = alloc(comm.get(), 4); }
    const size_t before = resident_bytes();
    std::vector<Window> windows;
    for (int i = 0; i < 100; ++i) {
      windows.push_back(alloc(comm.get(), 4));
      for (int peer = 0; peer < rank.size; ++peer)
        EXPECT_EQ(*data_as<int>(windows.back().get(), peer), 0);
    }
    EXPECT_LT(resident_bytes() - before, size_t{100} * rank.size * (32 << 10) * kSlowdown);
    barrier(comm.get());
  });
}

TEST(Windows, TenThousandOfThemLeaveNothingBehind) {
  run(processes(2), [](Rank& rank) {
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    { const Window warm_up = alloc(comm.get(), 4096); }
    barrier(comm.get());
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const Footprint before = footprint();
    const size_t resident = resident_bytes();
    for (int round = 0; round < 10000 / (kSlowdown * kSlowdown); ++round) {
      rank.at("round " + std::to_string(round / 1000 * 1000));
      const Window window = alloc(comm.get(), 4096);
      ASSERT_NE(window, nullptr);
      *data_as<int>(window.get(), rank.rank) = round;
    }
    barrier(comm.get());
    EXPECT_TRUE(returns_to(before));
    if (!kSanitized) {  // which keep freed memory on purpose
      EXPECT_LT(resident_bytes(), resident + (4 << 20));
    }
    barrier(comm.get());
  });
}

TEST(Windows, OutliveTheHandleOfTheirCommunicator) {
  for (const Layout layout : kLayouts) {
    run(layout, [](Rank& rank) {
      Comm comm = create(rank);
      ASSERT_NE(comm, nullptr);
      const Window window = alloc(comm.get(), 4096);
      const Window other = alloc(comm.get(), 4096);
      comm.reset();
      auto* own = data_as<int32_t>(window.get(), rank.rank);
      for (int round = 0; round < 100; ++round) {
        own[0] = round + rank.rank;
        int32_t sum = 0;
        ASSERT_TRUE(
            ok(symm_window_all_reduce(window.get(), 0, &sum, 1, SYMM_INT32, SYMM_SUM, nullptr)));
        ASSERT_EQ(sum, rank.size * round + rank.size * (rank.size - 1) / 2);
      }
      size_t size = 0;
      EXPECT_TRUE(ok(symm_window_size(other.get(), &size)));
      EXPECT_EQ(size, 4096u);
    });
  }
}

TEST(Windows, AreWholeForTheOthersWhenARankFreesItsOwn) {
  for (const Layout layout : kLayouts) {
    run(layout, [](Rank& rank) {
      const Comm comm = create(rank);
      ASSERT_NE(comm, nullptr);
      constexpr size_t kWords = 4096;
      for (int leaver = 0; leaver < rank.size; ++leaver) {
        Window window = alloc(comm.get(), kWords * 4);
        auto* own = data_as<int32_t>(window.get(), rank.rank);
        for (size_t i = 0; i < kWords; ++i) own[i] = static_cast<int32_t>(i) + rank.rank;
        barrier(comm.get());
        if (rank.rank == leaver) window.reset();
        // New ones, full of something else, which may not take that memory.
        std::vector<Window> others;
        for (int i = 0; i < 4; ++i) {
          others.push_back(alloc(comm.get(), kWords * 4));
          std::memset(data(others.back().get(), rank.rank), 0xff, kWords * 4);
        }
        barrier(comm.get());
        if (rank.rank != leaver) {
          for (int peer = 0; peer < rank.size; ++peer) {
            const auto* theirs = data_as<int32_t>(window.get(), peer);
            for (size_t i = 0; i < kWords; ++i)
              ASSERT_EQ(theirs[i], static_cast<int32_t>(i) + peer) << "rank " << peer << ", " << i;
          }
        }
        barrier(comm.get());
        // Stores of one who still has it reach nothing else.
        if (rank.rank == (leaver == 0 ? 1 : 0))
          std::memset(data(window.get(), leaver), 0x11, kWords * 4);
        barrier(comm.get());
        for (const Window& other : others) {
          for (int peer = 0; peer < rank.size; ++peer) {
            const auto* bytes = data_as<uint8_t>(other.get(), peer);
            ASSERT_EQ(std::count(bytes, bytes + kWords * 4, 0xff), ptrdiff_t{kWords * 4});
          }
        }
        barrier(comm.get());
      }
    });
  }
}

TEST(Windows, ANewOneIsNeverTakenForAnOlderOneInItsPlace) {
  run(processes(2), [](Rank& rank) {
    const Comm world = create(rank);
    ASSERT_NE(world, nullptr);
    for (const size_t count : {size_t{1}, size_t{100}, size_t{100000}}) {
      const Comm comm = split(world.get(), 0, 0);
      Window old = alloc(comm.get(), count * 4);
      const void* const place = data(old.get(), rank.rank);
      // Rank 0 gives the old one up before it gets the new one, so that its memory may be reused.
      if (rank.rank == 0) old.reset();
      const Window young = alloc(comm.get(), count * 4);
      if (rank.rank == 0) rank.at(data(young.get(), 0) == place ? "same place" : "another place");
      std::vector<int32_t> sum(count);
      EXPECT_TRUE(fails(SYMM_MISMATCH,
                        symm_window_all_reduce(rank.rank == 0 ? young.get() : old.get(), 0,
                                               sum.data(), count, SYMM_INT32, SYMM_SUM, nullptr),
                        {"symm_window_all_reduce"}));
    }
    EXPECT_TRUE(adds_up(world.get()));
  });
}

TEST(Windows, OfAnAbortedCommunicatorEndButStayReadable) {
  run(processes(2), [](Rank& rank) {
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    const Window window = alloc(comm.get(), 64);
    *data_as<int>(window.get(), rank.rank) = 5 + rank.rank;
    barrier(comm.get());
    EXPECT_TRUE(ok(symm_comm_abort(comm.get())));
    int sum = 0;
    EXPECT_TRUE(
        fails(SYMM_ABORTED,
              symm_window_all_reduce(window.get(), 0, &sum, 1, SYMM_INT32, SYMM_SUM, nullptr),
              {"symm_window_all_reduce"}));
    symm_window* out = nullptr;
    EXPECT_TRUE(fails(SYMM_ABORTED, symm_window_alloc(comm.get(), 64, nullptr, &out)));
    EXPECT_EQ(*data_as<int>(window.get(), 1 - rank.rank), 6 - rank.rank);
    size_t size = 0;
    EXPECT_TRUE(ok(symm_window_size(window.get(), &size)));
  });
}

TEST(Windows, OfTwoCommunicatorsHaveNothingToDoWithEachOther) {
  run(processes(2), [](Rank& rank) {
    const Comm first = create(rank, "first");
    const Comm second = create(rank, "second");
    ASSERT_NE(second, nullptr);
    const Window of_first = alloc(first.get(), 64);
    const Window of_second = alloc(second.get(), 64);
    *data_as<int>(of_first.get(), rank.rank) = 1;
    *data_as<int>(of_second.get(), rank.rank) = 10;
    EXPECT_TRUE(ok(symm_comm_abort(first.get())));
    int sum = 0;
    EXPECT_TRUE(
        ok(symm_window_all_reduce(of_second.get(), 0, &sum, 1, SYMM_INT32, SYMM_SUM, nullptr)));
    EXPECT_EQ(sum, 20);
    EXPECT_TRUE(fails(SYMM_ABORTED, symm_window_all_reduce(of_first.get(), 0, &sum, 1, SYMM_INT32,
                                                           SYMM_SUM, nullptr)));
  });
}

}  // namespace
}  // namespace symm_test
