// Meetings that cannot succeed: every rank that came fails within its deadline and says why.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "capi/symm.h"
#include "tests/support/calls.h"
#include "tests/support/places.h"

namespace symm_test {
namespace {

constexpr int kTimeoutMs = 800;

// Creates with kTimeoutMs and gives status and message; must not take longer than that and a
// second.
void gives_its_failure(Rank& rank) {
  const Stopwatch clock;
  symm_comm* comm = nullptr;
  const symm_comm_options options = comm_options(nullptr, kTimeoutMs);
  const symm_status status =
      symm_comm_create(rank.address.c_str(), rank.rank, rank.size, SYMM_CPU, &options, &comm);
  EXPECT_EQ(comm, nullptr);
  EXPECT_LT(clock.seconds(), (kTimeoutMs / 1000.0 + 1) * kSlowdown);
  rank.give(symm_status_name(status));
  rank.give(symm_last_error());
}

// The same with a deadline far away: a failure known at once must be told at once.
void gives_its_failure_at_once(Rank& rank) {
  const Stopwatch clock;
  symm_comm_options options = comm_options(nullptr, 20000);
  if (rank.argument == "timeout_ms") options.timeout_ms += rank.rank == 1;
  if (rank.argument == "wait_timeout_ms") options.wait_timeout_ms = 1000 + (rank.rank == 1);
  if (rank.argument == "scratch_bytes") options.scratch_bytes = (64 << 20) << (rank.rank == 1);
  if (rank.argument == "flags") options.flags = rank.rank == 1 ? SYMM_COMM_STRICT : 0;
  options.name = rank.argument.c_str();
  const int claimed = rank.argument == "twice" && rank.rank == 2 ? 1 : rank.rank;
  const int size = rank.argument == "size" && rank.rank == 1 ? rank.size + 1 : rank.size;
  symm_comm* comm = nullptr;
  const symm_status status =
      symm_comm_create(rank.address.c_str(), claimed, size, SYMM_CPU, &options, &comm);
  EXPECT_EQ(comm, nullptr);
  EXPECT_LT(clock.seconds(), 8 * kSlowdown);
  rank.give(symm_status_name(status));
  rank.give(symm_last_error());
  rank.at("failed");
  rank.hear();  // those who come last are told by those who are still there
}

void expect_failure(const std::vector<std::string>& given, symm_status status,
                    std::initializer_list<std::string> mentions) {
  ASSERT_EQ(given.size(), 2u);
  EXPECT_EQ(given[0], symm_status_name(status)) << given[1];
  EXPECT_TRUE(mentions_all(given[1], mentions));
}

std::vector<std::string> all_addresses(const Directory& directory) {
  return {local_address(), "file://" + directory.file("meeting"), served_address()};
}

TEST(RendezvousFaults, ARankThatNeverComesIsNamedByEveryRankThatCame) {
  const Directory directory;
  for (const std::string& address : all_addresses(directory)) {
    RunOptions options;
    options.address = address;
    options.size = 5;  // ranks 3 and 4 never come
    const auto given = run(processes(3), gives_its_failure, options);
    for (const auto& of_rank : given) {
      expect_failure(of_rank, SYMM_TIMEOUT, {"symm_comm_create", "3", "4", "did not arrive"});
    }
  }
}

TEST(RendezvousFaults, WithoutTheRankThatServesTheOthersNameItAndTheAddress) {
  const int port = free_port();
  const Directory directory;
  for (const std::string& address :
       {"tcp://127.0.0.1:" + std::to_string(port), "file://" + directory.file("meeting")}) {
    RunOptions options;
    options.address = address;
    options.size = 3;
    Ranks ranks(
        processes(3),
        [](Rank& rank) {
          if (rank.rank != 0) gives_its_failure(rank);
        },
        options);
    ranks.finish();
    for (int rank : {1, 2}) {
      expect_failure(ranks.given(rank), SYMM_TIMEOUT,
                     {"rank 0", address.substr(address.find("//") + 2)});
    }
  }
}

TEST(RendezvousFaults, ARankThatComesAfterTheOthersGaveUpIsToldAtOnce) {
  const Directory directory;
  for (const std::string& address : all_addresses(directory)) {
    RunOptions options;
    options.address = address;
    Ranks ranks(
        processes(3),
        [](Rank& rank) {
          if (rank.rank == 2) rank.hear();
          gives_its_failure(rank);
          rank.at("failed");
          if (rank.rank != 2) rank.hear();  // the server, rank 0, is still there
          // The next meeting is a new one.
          const Comm comm = create(rank, "next");
          EXPECT_TRUE(adds_up(comm.get()));
        },
        options);
    ranks.wait_for(0, "failed");
    ranks.wait_for(1, "failed");
    ranks.tell(2, "come now");
    ranks.wait_for(2, "failed");
    ranks.tell(0, "go on");
    ranks.tell(1, "go on");
    ranks.finish();
    for (int rank = 0; rank < 3; ++rank) {
      expect_failure(ranks.given(rank), SYMM_TIMEOUT, {"symm_comm_create"});
    }
  }
}

struct Disagreement {
  const char* what;
  std::vector<std::string> mentions;
};

TEST(RendezvousFaults, DisagreementFailsEveryRankAtOnceWithBothValues) {
  const Directory directory;
  const std::vector<Disagreement> cases = {
      {"twice", {"rank 1", "two"}},
      {"size", {"size", "3", "4"}},
      {"timeout_ms", {"timeout_ms"}},
      {"wait_timeout_ms", {"wait_timeout_ms", "1000", "1001"}},
      {"scratch_bytes", {"scratch_bytes", "67108864", "134217728"}},
      {"flags", {"flags", "4", "0"}}};
  for (const std::string& address : all_addresses(directory)) {
    for (const Disagreement& c : cases) {
      RunOptions options;
      options.address = address;
      options.argument = c.what;
      Ranks ranks(processes(3), gives_its_failure_at_once, options);
      ranks.wait_for_all("failed");
      ranks.tell_all("end");
      ranks.finish();
      for (int rank = 0; rank < 3; ++rank) {
        const auto& of_rank = ranks.given(rank);
        expect_failure(of_rank, SYMM_INVALID_ARGUMENT, {"symm_comm_create"});
        for (const std::string& mention : c.mentions) {
          EXPECT_TRUE(mentions_all(of_rank[1], {mention})) << c.what;
        }
      }
    }
  }
}

TEST(RendezvousFaults, ADeathDuringTheMeetingIsNamedAtOnce) {
  const Directory directory;
  for (const std::string& address : all_addresses(directory)) {
    for (int victim : {1, 0}) {
      const bool served_by_victim = victim == 0 && address.find("symm://") != 0;
      RunOptions options;
      options.address = address;
      Ranks ranks(
          processes(4),
          [](Rank& rank) {
            if (rank.rank == 3) {
              rank.hear();  // keeps the meeting open
              return;
            }
            rank.at("creating");
            symm_comm* comm = nullptr;
            const symm_comm_options chosen = comm_options(nullptr, 4000);
            const symm_status status = symm_comm_create(rank.address.c_str(), rank.rank, rank.size,
                                                        SYMM_CPU, &chosen, &comm);
            rank.give(symm_status_name(status));
            rank.give(symm_last_error());
          },
          options);
      for (int rank : {0, 1, 2}) ranks.wait_for(rank, "creating");
      std::this_thread::sleep_for(std::chrono::milliseconds(500 * kSlowdown));
      const Stopwatch clock;
      ranks.signal(victim, SIGKILL);
      for (int rank : {0, 1, 2}) ranks.finish(rank);
      if (!served_by_victim) {
        EXPECT_LT(clock.seconds(), 1.0 * kSlowdown) << "the death was not told at once";
      }
      for (int rank : {0, 1, 2}) {
        if (rank == victim) continue;
        ASSERT_EQ(ranks.given(rank).size(), 2u);
        EXPECT_NE(ranks.given(rank, 0), "SYMM_OK");
        EXPECT_TRUE(mentions_all(ranks.given(rank, 1), {"rank " + std::to_string(victim)}));
        if (!served_by_victim) {
          EXPECT_EQ(ranks.given(rank, 0), "SYMM_PEER");
        }
      }
      ranks.tell(3, "go");
      ranks.finish();
    }
  }
}

TEST(RendezvousFaults, AnotherJobsTokenKeepsItOut) {
  RunOptions options;
  options.address = local_address();
  options.environment = [](int process) {
    return std::vector<std::string>{process == 2 ? "SYMM_TOKEN=theirs" : "SYMM_TOKEN=ours"};
  };
  const auto given = run(processes(3), gives_its_failure, options);
  // The job does without the stranger: to it, its own rank 2 has not come.
  for (int rank : {0, 1})
    expect_failure(given[static_cast<size_t>(rank)], SYMM_TIMEOUT, {"rank 2"});
  EXPECT_NE(given[2][0], "SYMM_OK");
  EXPECT_TRUE(mentions_all(given[2][1], {"symm_comm_create", "token", "SYMM_TOKEN"}));
}

TEST(RendezvousFaults, AServedAddressDoesNotOpenToAGuessedToken) {
  std::string address = served_address();
  // symm://<token>@...
  char& digit = address[std::string("symm://").size()];
  digit = digit == '0' ? '1' : '0';
  RunOptions options;
  options.address = address;
  options.size = 2;
  const auto given = run(processes(2), gives_its_failure, options);
  EXPECT_NE(given[1][0], "SYMM_OK");
  EXPECT_TRUE(mentions_all(given[1][1], {"token"}));
  EXPECT_NE(given[0][0], "SYMM_OK");
}

TEST(RendezvousFaults, APortThatAnotherProgramServesFailsEveryRankInTime) {
  int port = 0;
  const int listener = listen_on(&port);
  RunOptions options;
  options.address = "tcp://127.0.0.1:" + std::to_string(port);
  const auto given = run(processes(3), gives_its_failure, options);
  close(listener);
  EXPECT_NE(given[0][0], "SYMM_OK");
  EXPECT_TRUE(mentions_all(given[0][1], {std::to_string(port), "in use"}));
  for (int rank : {1, 2}) {
    EXPECT_NE(given[static_cast<size_t>(rank)][0], "SYMM_OK");
    EXPECT_TRUE(mentions_all(given[static_cast<size_t>(rank)][1], {std::to_string(port)}));
  }
}

TEST(RendezvousFaults, AnAddressThatIsNowhereIsNamedWithItsReason) {
  const Directory directory;
  struct Nowhere {
    std::string address;
    std::vector<std::string> mentions;
  };
  const std::vector<Nowhere> cases = {
      {"tcp://no-such-host.invalid:12345", {"no-such-host.invalid"}},
      {"tcp://192.0.2.1:12345", {"192.0.2.1"}},
      {"file://" + directory.path() + "/missing/meeting", {"missing/meeting"}},
      {"file://" + directory.path(), {directory.path()}},
  };
  for (const Nowhere& c : cases) {
    RunOptions options;
    options.address = c.address;
    const auto given = run(processes(2), gives_its_failure, options);
    for (const auto& of_rank : given) {
      ASSERT_EQ(of_rank.size(), 2u);
      EXPECT_TRUE(of_rank[0] == "SYMM_SYSTEM" || of_rank[0] == "SYMM_TIMEOUT") << of_rank[0];
      for (const std::string& mention : c.mentions) {
        EXPECT_TRUE(mentions_all(of_rank[1], {"symm_comm_create", mention}));
      }
    }
    EXPECT_TRUE(mentions_all(given[0][1], {"errno"}) || mentions_all(given[0][1], {"not known"}))
        << given[0][1];
  }
}

// ---- Files of other jobs ----

void meets(Rank& rank) {
  const Comm comm = create(rank);
  ASSERT_NE(comm, nullptr);
  EXPECT_TRUE(adds_up(comm.get()));
  EXPECT_TRUE(ok(symm_comm_barrier(comm.get(), nullptr)));
}

TEST(RendezvousFaults, TheFileOfADeadJobIsNoHindrance) {
  const Directory directory;
  RunOptions options;
  options.address = "file://" + directory.file("meeting");
  {
    Ranks dead(
        processes(2),
        [](Rank& rank) {
          if (rank.rank == 1) return;
          rank.at("creating");
          create(rank);
        },
        options);
    dead.wait_for(0, "creating");
    const Stopwatch clock;
    // Not just any file there: it is written under another name first.
    while (access(directory.file("meeting").c_str(), F_OK) != 0 &&
           clock.seconds() < 5 * kSlowdown) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    dead.signal(0, SIGKILL);
    dead.finish(0);
  }
  ASSERT_EQ(files_in(directory.path()).size(), 1u) << "a job killed while it meets leaves its file";
  const std::string stale = read_file(directory.file("meeting"));
  run(processes(3), meets, options);
  EXPECT_EQ(files_in(directory.path()), std::vector<std::string>{});

  // Also when those who look for rank 0 come long before it.
  write_file(directory.file("meeting"), stale);
  Ranks ranks(
      processes(3),
      [](Rank& rank) {
        if (rank.rank == 0) rank.hear();
        rank.at("creating");
        meets(rank);
      },
      options);
  ranks.wait_for(1, "creating");
  ranks.wait_for(2, "creating");
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  ranks.tell(0, "come");
  ranks.finish();
}

TEST(RendezvousFaults, AFileOfAnythingElseIsNoHindrance) {
  int port = 0;
  const int foreign = listen_on(&port);
  for (const std::string& text :
       {std::string(), std::string("hello\n"), std::string(100000, 'x'), std::string(300, '\0'),
        "tcp://127.0.0.1:" + std::to_string(port) + "\n", std::string("symm://\n"),
        "symm 1\n127.0.0.1:" + std::to_string(port) + "\n"}) {
    const Directory directory;
    write_file(directory.file("meeting"), text);
    RunOptions options;
    options.address = "file://" + directory.file("meeting");
    run(processes(2), meets, options);
  }
  close(foreign);
}

TEST(RendezvousFaults, AStaleFileThatNamesALiveForeignServerIsNoHindrance) {
  // A real file, with every number that could be its port turned into that of a server of another
  // kind.
  const Directory directory;
  RunOptions options;
  options.address = "file://" + directory.file("meeting");
  std::string text;
  {
    Ranks dead(
        processes(1),
        [](Rank& rank) {
          rank.size = 2;
          create(rank);
        },
        options);
    const Stopwatch clock;
    while (text.empty() && clock.seconds() < 5 * kSlowdown)
      text = read_file(directory.file("meeting"));
    dead.signal(0, SIGKILL);
    dead.finish();
  }
  ASSERT_FALSE(text.empty());
  int port = 0;
  const int foreign = listen_on(&port);
  std::string changed;
  for (size_t i = 0; i < text.size(); ++i) {
    changed += text[i];
    const size_t digits = text.find_first_not_of("0123456789", i + 1);
    if (text[i] == ':' && digits != i + 1) {
      changed += std::to_string(port);
      i = std::min(digits, text.size()) - 1;
    }
  }
  write_file(directory.file("meeting"), changed);
  run(processes(2), meets, options);
  close(foreign);
}

}  // namespace
}  // namespace symm_test
