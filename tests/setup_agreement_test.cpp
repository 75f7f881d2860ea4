// One rank's failure in a collective set-up call is every rank's, names that rank, and ends
// nothing.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "capi/symm.h"
#include "tests/support/calls.h"
#include "tests/support/footprint.h"
#include "tests/support/full_table.h"

namespace symm_test {
namespace {

// Runs `wrong` on one rank after the other and `right` on all others: both must fail alike.
void one_rank_at_a_time(const Rank& rank, symm_comm* comm, symm_status expected,
                        const std::function<symm_status()>& right,
                        const std::function<symm_status()>& wrong) {
  for (int culprit = 0; culprit < rank.size; ++culprit) {
    const Stopwatch clock;
    const symm_status status = rank.rank == culprit ? wrong() : right();
    EXPECT_TRUE(fails(expected, status)) << "rank " << culprit << " was wrong";
    if (rank.rank != culprit) {
      EXPECT_TRUE(mentions_all(symm_last_error(), {"rank " + std::to_string(culprit)}));
    }
    EXPECT_LT(clock.seconds(), 5 * kSlowdown);
    EXPECT_TRUE(ok(symm_comm_check(comm, nullptr)));
    EXPECT_TRUE(adds_up(comm));
  }
}

TEST(SetupAgreement, ABadColorFailsTheSplitOnEveryRank) {
  run(processes(3), [](Rank& rank) {
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    symm_comm* out = nullptr;
    one_rank_at_a_time(
        rank, comm.get(), SYMM_INVALID_ARGUMENT,
        [&] { return symm_comm_split(comm.get(), 0, 0, nullptr, &out); },
        [&] { return symm_comm_split(comm.get(), -5, 0, nullptr, &out); });
    EXPECT_EQ(out, nullptr);
    const Comm half = split(comm.get(), 0, 0);
    EXPECT_TRUE(adds_up(half.get()));
  });
}

TEST(SetupAgreement, ANullOutputFailsEveryRank) {
  run(processes(3), [](Rank& rank) {
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    symm_window* window = nullptr;
    symm_comm* out = nullptr;
    one_rank_at_a_time(
        rank, comm.get(), SYMM_INVALID_ARGUMENT,
        [&] { return symm_window_alloc(comm.get(), 64, nullptr, &window); },
        [&] { return symm_window_alloc(comm.get(), 64, nullptr, nullptr); });
    one_rank_at_a_time(
        rank, comm.get(), SYMM_INVALID_ARGUMENT,
        [&] { return symm_comm_split(comm.get(), 0, 0, nullptr, &out); },
        [&] { return symm_comm_split(comm.get(), 0, 0, nullptr, nullptr); });
    EXPECT_EQ(window, nullptr);
    EXPECT_EQ(out, nullptr);
  });
}

TEST(SetupAgreement, UnknownOptionsFailEveryRank) {
  run(processes(2), [](Rank& rank) {
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    symm_window* window = nullptr;
    symm_window_options unknown = window_options();
    unknown.flags = 1u << 30;
    one_rank_at_a_time(
        rank, comm.get(), SYMM_UNSUPPORTED,
        [&] { return symm_window_alloc(comm.get(), 64, nullptr, &window); },
        [&] { return symm_window_alloc(comm.get(), 64, &unknown, &window); });
    symm_comm* out = nullptr;
    symm_comm_options negative = comm_options();
    negative.wait_timeout_ms = -1;
    one_rank_at_a_time(
        rank, comm.get(), SYMM_INVALID_ARGUMENT,
        [&] { return symm_comm_split(comm.get(), 0, 0, nullptr, &out); },
        [&] { return symm_comm_split(comm.get(), 0, 0, &negative, &out); });
  });
}

TEST(SetupAgreement, MemoryThatCannotBeSharedFailsTheRegistrationOnEveryRank) {
  run(processes(3), [](Rank& rank) {
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    const Window home = alloc(comm.get(), 4096);
    std::vector<char> heap(4096);
    symm_window* window = nullptr;
    one_rank_at_a_time(
        rank, comm.get(), SYMM_UNSUPPORTED,
        [&] {
          return symm_window_register(comm.get(), data(home.get(), rank.rank), 4096, nullptr,
                                      &window);
        },
        [&] { return symm_window_register(comm.get(), heap.data(), 4096, nullptr, &window); });
    one_rank_at_a_time(
        rank, comm.get(), SYMM_INVALID_ARGUMENT,
        [&] {
          return symm_window_register(comm.get(), data(home.get(), rank.rank), 4096, nullptr,
                                      &window);
        },
        [&] { return symm_window_register(comm.get(), nullptr, 4096, nullptr, &window); });
    EXPECT_EQ(window, nullptr);
  });
}

TEST(SetupAgreement, WindowsOfDifferentSizesFailEveryRankWithTheSizes) {
  run(processes(3), [](Rank& rank) {
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    symm_window* window = nullptr;
    const size_t bytes = rank.rank == 1 ? 8192 : 4096;
    const symm_status status = symm_window_alloc(comm.get(), bytes, nullptr, &window);
    EXPECT_NE(status, SYMM_OK);
    EXPECT_TRUE(mentions_all(symm_last_error(), {"symm_window_alloc", "rank 1", "4096", "8192"}));
    EXPECT_EQ(window, nullptr);
    rank.give(symm_status_name(status));
  });
}

TEST(SetupAgreement, MoreThanAFileMayHoldIsOutOfMemoryOnEveryRank) {
  run(processes(3), [](Rank& rank) {
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    // Past its file size limit a process would get SIGXFSZ: the library must not raise it.
    const Footprint before = footprint();
    const size_t bytes = 64 << 20;
    rlimit unlimited;
    getrlimit(RLIMIT_FSIZE, &unlimited);
    symm_window* window = nullptr;
    if (rank.rank == 0) {
      const rlimit small = {1 << 20, unlimited.rlim_max};
      setrlimit(RLIMIT_FSIZE, &small);
    }
    EXPECT_TRUE(fails(SYMM_OUT_OF_MEMORY, symm_window_alloc(comm.get(), bytes, nullptr, &window),
                      {"symm_window_alloc", "rank 0"}));
    setrlimit(RLIMIT_FSIZE, &unlimited);
    EXPECT_TRUE(adds_up(comm.get()));
    EXPECT_TRUE(returns_to(before));
    const Window after = alloc(comm.get(), bytes);
    EXPECT_NE(after, nullptr);
  });
}

TEST(SetupAgreement, ARankOutOfAddressSpaceFailsTheAllocationOnEveryRank) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need address space without a limit";
  run(processes(3), [](Rank& rank) {
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    symm_window* window = nullptr;
    for (int culprit = 0; culprit < rank.size; ++culprit) {
      rlimit unlimited;
      getrlimit(RLIMIT_AS, &unlimited);
      if (rank.rank == culprit) {
        const rlimit tight = {size_t{768} << 20, unlimited.rlim_max};
        setrlimit(RLIMIT_AS, &tight);
      }
      EXPECT_TRUE(fails(SYMM_OUT_OF_MEMORY,
                        symm_window_alloc(comm.get(), size_t{512} << 20, nullptr, &window),
                        {"symm_window_alloc", "rank " + std::to_string(culprit)}));
      setrlimit(RLIMIT_AS, &unlimited);
      EXPECT_EQ(window, nullptr);
      EXPECT_TRUE(adds_up(comm.get()));
    }
    EXPECT_NE(alloc(comm.get(), 1 << 20), nullptr);
  });
}

TEST(SetupAgreement, ARankOutOfDescriptorsFailsTheWindowOnEveryRankAndEndsNothing) {
  run(processes(3), [](Rank& rank) {
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    const Window home = alloc(comm.get(), 4096);
    symm_window* window = nullptr;
    const auto alloc_one = [&] { return symm_window_alloc(comm.get(), 4 << 20, nullptr, &window); };
    const auto register_one = [&] {
      return symm_window_register(comm.get(), data(home.get(), rank.rank), 4096, nullptr, &window);
    };
    for (const auto& call : std::vector<std::function<symm_status()>>{alloc_one, register_one}) {
      one_rank_at_a_time(rank, comm.get(), SYMM_SYSTEM, call, [&] {
        const FullTable table(0);
        const symm_status status = call();
        EXPECT_TRUE(mentions_all(symm_last_error(), {"errno 24", "ulimit -n"}));
        return status;
      });
    }
    EXPECT_EQ(window, nullptr);
    EXPECT_NE(alloc(comm.get(), 4 << 20), nullptr);
  });
}

// The others are in the new communicator's star by then, where this rank is never seen.
TEST(SetupAgreement, ARankOutOfDescriptorsFailsTheSplitOnEveryRankAtOnceAndEndsNothing) {
  for (const char* spare : {"0", "1"}) {
    RunOptions options;
    options.argument = spare;
    run(
        processes(4),
        [](Rank& rank) {
          const Comm comm = create(rank, comm_options(nullptr, 20000, 20000));
          ASSERT_NE(comm, nullptr);
          symm_comm* part = nullptr;
          const auto split_it = [&] {
            return symm_comm_split(comm.get(), rank.rank % 2, 0, nullptr, &part);
          };
          one_rank_at_a_time(rank, comm.get(), SYMM_SYSTEM, split_it, [&] {
            const FullTable table(std::stoi(rank.argument));
            return split_it();
          });
          EXPECT_EQ(part, nullptr);
          const Comm whole = split(comm.get(), 0, 0);
          EXPECT_TRUE(adds_up(whole.get()));
        },
        options);
  }
}

// All ranks fail before any of their processes ends: those who come last must find rank 0.
void expect_all_fail_at_once(Body body, const std::string& argument) {
  const Stopwatch clock;
  RunOptions options;
  options.argument = argument;
  Ranks ranks(processes(3), body, options);
  ranks.wait_for_all("failed");
  ranks.tell_all("end");
  ranks.finish();
  EXPECT_LT(clock.seconds(), 10 * kSlowdown) << "the others waited for their deadline";
}

TEST(SetupAgreement, ABadOptionOfOneRankFailsTheCreationOfAll) {
  for (const char* culprit : {"0", "2"}) {
    expect_all_fail_at_once(
        [](Rank& rank) {
          symm_comm_options chosen = comm_options(nullptr, 20000);
          const bool wrong = std::to_string(rank.rank) == rank.argument;
          if (wrong) chosen.timeout_ms = -1;
          symm_comm* comm = nullptr;
          EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT,
                            symm_comm_create(rank.address.c_str(), rank.rank, rank.size, SYMM_CPU,
                                             &chosen, &comm),
                            {"symm_comm_create", "timeout_ms"}));
          if (!wrong) {
            EXPECT_TRUE(mentions_all(symm_last_error(), {"rank " + rank.argument}));
          }
          rank.at("failed");
          rank.hear();
        },
        culprit);
  }
}

TEST(SetupAgreement, AGpuAskedForByOneRankFailsTheCreationOfAll) {
  expect_all_fail_at_once(
      [](Rank& rank) {
        const symm_comm_options chosen = comm_options(nullptr, 20000);
        symm_comm* comm = nullptr;
        EXPECT_TRUE(fails(SYMM_UNSUPPORTED,
                          symm_comm_create(rank.address.c_str(), rank.rank, rank.size,
                                           rank.rank == 1 ? 0 : SYMM_CPU, &chosen, &comm),
                          {"symm_comm_create", "CUDA"}));
        if (rank.rank != 1) {
          EXPECT_TRUE(mentions_all(symm_last_error(), {"rank 1"}));
        }
        rank.at("failed");
        rank.hear();
      },
      "");
}

}  // namespace
}  // namespace symm_test
