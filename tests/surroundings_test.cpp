// Processes in unusual states: what a caller, a launcher or a container did to them before symm's
// first call must change no result, break no wait and damage nothing of the caller's.
#include <grp.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cctype>
#include <chrono>
#include <cstring>
#include <functional>
#include <locale>
#include <string>
#include <thread>
#include <vector>

#include "capi/symm.h"
#include "tests/support/calls.h"
#include "tests/support/footprint.h"
#include "tests/support/full_table.h"
#include "tests/support/json.h"
#include "tests/support/places.h"

namespace symm_test {
namespace {

constexpr int kNobody = 65534;

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// A communicator's whole life: windows, a registration, a split, all-reduces that take every way.
void works(const Rank& rank, const char* name) {
  const Comm comm = create(rank, comm_options(name, 20000, 20000));
  ASSERT_NE(comm, nullptr);
  const Window window = alloc(comm.get(), 256 << 10);
  auto* own = data_as<int32_t>(window.get(), rank.rank);
  symm_window* registered = nullptr;
  EXPECT_TRUE(ok(symm_window_register(comm.get(), own, 4096, nullptr, &registered)));
  const Window interior(registered);
  const Comm part = split(comm.get(), rank.rank % 2, 0);
  EXPECT_TRUE(adds_up(part.get()));
  for (const size_t count : {size_t{1}, size_t{500}, size_t{50000}}) {
    for (size_t i = 0; i < count; ++i) own[i] = static_cast<int32_t>(i) + rank.rank;
    std::vector<int32_t> sum(count);
    ASSERT_TRUE(ok(
        symm_window_all_reduce(window.get(), 0, sum.data(), count, SYMM_INT32, SYMM_SUM, nullptr)));
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(sum[i], rank.size * static_cast<int32_t>(i) + rank.size * (rank.size - 1) / 2);
    }
  }
  EXPECT_TRUE(ok(symm_comm_barrier(comm.get(), nullptr)));
  for (int peer = 0; peer < rank.size; ++peer) {
    EXPECT_EQ(data_as<int32_t>(interior.get(), peer)[3], 3 + peer);
  }
  size_t needed = 0;
  EXPECT_TRUE(ok(symm_report(comm.get(), nullptr, 0, &needed)));
  EXPECT_TRUE(ok(symm_comm_barrier(comm.get(), nullptr)));
}

// ---- Descriptors ----

TEST(Surroundings, StandardStreamsMayBeClosedAndWrittenToAllTheSame) {
  for (const char* closed : {"0", "12", "012"}) {
    RunOptions options;
    options.argument = closed;
    run(
        processes(3),
        [](Rank& rank) {
          for (const char stream : rank.argument) close(stream - '0');
          const Comm comm = create(rank, "outer");
          ASSERT_NE(comm, nullptr);
          works(rank, "inner");
          // A program that does not know its streams are closed writes and reads on: nothing of
          // symm's may lie there.
          char bytes[64] = "no frame of symm's protocol, and no page of a window of its own";
          for (const char stream : rank.argument) {
            const int fd = stream - '0';
            EXPECT_EQ(write(fd, bytes, sizeof bytes), -1);
            EXPECT_EQ(read(fd, bytes, sizeof bytes), -1);
            EXPECT_EQ(errno, EBADF);
          }
          EXPECT_TRUE(adds_up(comm.get()));
          const Window window = alloc(comm.get(), 4096);
          EXPECT_TRUE(ok(symm_comm_check(comm.get(), nullptr)));
          EXPECT_TRUE(ok(symm_comm_barrier(comm.get(), nullptr)));
        },
        options);
  }
}

// The rank of the argument's first digit has few descriptors left, down to none.
void creates_with_few_descriptors(Rank& rank) {
  works(rank, "warm-up");
  sleep_ms(200);
  const Footprint before = footprint();
  const std::string culprit = rank.argument.substr(0, 1);
  const bool full = std::to_string(rank.rank) == culprit;
  // The others stay, so that those who fail can tell it: one address serves all.
  Comm keeper = create(rank, "keeper");
  ASSERT_NE(keeper, nullptr);
  bool was_enough = false;
  for (int spare = 0; spare < 40 && !was_enough; ++spare) {
    rank.at("spare " + std::to_string(spare));
    SCOPED_TRACE("rank " + culprit + " has " + std::to_string(spare) + " descriptors to spare");
    symm_comm* comm = nullptr;
    const std::string name = "few " + std::to_string(spare);
    const symm_comm_options options = comm_options(name.c_str(), 3000, 20000);
    symm_status status = SYMM_OK;
    std::string message;
    {
      const FullTable table(full ? spare : 1000);
      const Stopwatch clock;
      status =
          symm_comm_create(rank.address.c_str(), rank.rank, rank.size, SYMM_CPU, &options, &comm);
      message = symm_last_error();
      EXPECT_LT(clock.seconds(), 8 * kSlowdown);
    }
    was_enough = status == SYMM_OK;
    if (!was_enough) {
      EXPECT_EQ(comm, nullptr);
      if (full) {
        EXPECT_EQ(status, SYMM_SYSTEM) << message;
        EXPECT_TRUE(mentions_all(message, {"symm_comm_create", "errno 24", "ulimit -n"}));
      } else if (status == SYMM_SYSTEM) {
        EXPECT_TRUE(mentions_all(message, {"rank " + culprit, "errno 24", "ulimit -n"}));
      } else {
        // One without a single descriptor cannot tell the others, who then miss it.
        EXPECT_TRUE(status == SYMM_TIMEOUT || status == SYMM_PEER) << message;
        EXPECT_TRUE(mentions_all(message, {"rank " + culprit}));
      }
    }
    // Succeeds nowhere or everywhere.
    int32_t good = was_enough;
    int32_t all_good = -1;
    ASSERT_TRUE(
        ok(symm_all_reduce(keeper.get(), &good, &all_good, 1, SYMM_INT32, SYMM_SUM, nullptr)));
    EXPECT_EQ(all_good, good * rank.size);
    if (was_enough) {
      EXPECT_TRUE(adds_up(comm));
    }
    symm_comm_free(comm);
  }
  EXPECT_TRUE(was_enough);
  EXPECT_TRUE(ok(symm_comm_barrier(keeper.get(), nullptr)));
  works(rank, "after");
  keeper.reset();
  EXPECT_TRUE(returns_to(before));
}

TEST(Surroundings, AFullDescriptorTableFailsTheCreationOnEveryRankWithTheRemedy) {
  for (const char* culprit : {"1", "0"}) {
    RunOptions options;
    options.seconds = 90;
    options.argument = culprit;
    options.address = served_address();
    run(processes(2), creates_with_few_descriptors, options);
  }
}

// ---- Places, words and users ----

TEST(Surroundings, ADeletedCurrentDirectoryIsNoHindrance) {
  run(mixed(2, 1), [](Rank& rank) {
    {
      const Directory directory;
      ASSERT_EQ(chdir(directory.path().c_str()), 0);
    }
    char place[4096];
    ASSERT_EQ(getcwd(place, sizeof place), nullptr) << "it is still there";
    works(rank, "gone");
    char address[SYMM_ADDRESS_SIZE];
    size_t needed = 0;
    EXPECT_TRUE(ok(symm_address_create(nullptr, address, sizeof address, &needed)));
    EXPECT_TRUE(ok(symm_report(nullptr, nullptr, 0, &needed)));
  });
}

class Grouping : public std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '\''; }  // valid in no JSON and no address
  std::string do_grouping() const override { return "\1"; }
};

std::string report_of(const symm_comm* comm) {
  std::string text(1 << 20, '\0');
  size_t needed = 0;
  EXPECT_TRUE(ok(symm_report(comm, text.data(), text.size(), &needed)));
  text.resize(needed - 1);
  return text;
}

// Rank 0, 1 or both (argument) write numbers as "1'2'3'4"; what they say to each other and to the
// caller does not show it.
void works_where_digits_are_grouped(Rank& rank) {
  if (rank.argument.find(std::to_string(rank.rank)) != std::string::npos) {
    std::locale::global(std::locale(std::locale::classic(), new Grouping));
  }
  if (rank.rank == 0) {
    rank.give(served_address());
    rank.at("served");
  }
  works(rank, "over a file");
  rank.address = rank.hear();
  works(rank, "served");
  const Comm comm = create(rank, "message");
  ASSERT_NE(comm, nullptr);
  symm_window* window = nullptr;
  EXPECT_TRUE(
      fails(SYMM_INVALID_ARGUMENT,
            symm_window_alloc(comm.get(), rank.rank == 0 ? 1234567 : 7654321, nullptr, &window),
            {"1234567", "7654321"}));
  float value = 0;
  EXPECT_TRUE(fails(SYMM_UNSUPPORTED,
                    symm_all_reduce(comm.get(), &value, &value, 1, static_cast<symm_dtype>(4242424),
                                    SYMM_SUM, nullptr),
                    {"4242424"}));
  rank.give(report_of(comm.get()));
  EXPECT_TRUE(ok(symm_comm_barrier(comm.get(), nullptr)));
}

TEST(Surroundings, ALocaleThatGroupsDigitsChangesNoMessageAndNoAddress) {
  for (const char* grouped : {"0", "1", "01"}) {
    RunOptions options;
    options.argument = grouped;
    Ranks ranks(processes(2), works_where_digits_are_grouped, options);
    if (!ranks.wait_for(0, "served")) return;
    const std::string address = ranks.given(0, 0);
    ranks.tell_all(address);
    ranks.finish();
    for (const int rank : {0, 1}) {
      const std::string report = ranks.given(rank, rank == 0 ? 1 : 0);
      EXPECT_NO_THROW(parse_json(report)) << report;
    }
  }
}

TEST(Surroundings, AnyUserMayRunTheRanks) {
  if (getuid() != 0) GTEST_SKIP() << "only root can become another user";
  for (const Layout layout : {processes(3), mixed(2, 2)}) {
    RunOptions options;
    options.uid = kNobody;
    run(
        layout, [](Rank& rank) { works(rank, "nobody's"); }, options);
    options.address = local_address();
    run(
        layout, [](Rank& rank) { works(rank, "nobody's"); }, options);
    options.address = served_address();  // by root
    run(
        layout, [](Rank& rank) { works(rank, "nobody's"); }, options);
  }
}

TEST(Surroundings, RanksOfTwoUsersDoNotMeetAndAreToldWhy) {
  if (getuid() != 0) GTEST_SKIP() << "only root can become another user";
  RunOptions options;
  options.address = local_address();
  Ranks ranks(
      processes(3),
      [](Rank& rank) {
        if (rank.rank == 1) {
          ASSERT_EQ(setgroups(0, nullptr), 0);
          ASSERT_EQ(setgid(kNobody), 0);
          ASSERT_EQ(setuid(kNobody), 0);
          prctl(PR_SET_DUMPABLE, 1);
        }
        const Stopwatch clock;
        symm_comm* comm = nullptr;
        const symm_comm_options chosen = comm_options(nullptr, 10000);
        EXPECT_NE(
            symm_comm_create(rank.address.c_str(), rank.rank, rank.size, SYMM_CPU, &chosen, &comm),
            SYMM_OK);
        EXPECT_TRUE(mentions_all(symm_last_error(), {"rank", "user"}));
        EXPECT_LT(clock.seconds(), 5 * kSlowdown) << "known at once, told at the deadline";
        rank.at("failed");
        rank.hear();
      },
      options);
  ranks.wait_for_all("failed");
  ranks.tell_all("end");
  ranks.finish();
}

// ---- Signals and stacks ----

std::string signals_of_this_process() {
  std::string state;
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action = {};
    if (sigaction(number, nullptr, &action) != 0) continue;
    state += std::to_string(number) + " " +
             std::to_string(reinterpret_cast<uintptr_t>(action.sa_handler)) + " " +
             std::to_string(action.sa_flags) + "\n";
  }
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  for (int number = 1; number < NSIG; ++number) {
    state += sigismember(&mask, number) == 1 ? 'x' : '.';
  }
  return state;
}

// Signals are as the caller has left them: also when a peer dies and symm writes to its socket.
void leaves_signals_alone(Rank& rank) {
  for (const int number : {SIGPIPE, SIGCHLD}) {
    signal(number, rank.argument == "ignored" ? SIG_IGN : SIG_DFL);
  }
  const std::string before = signals_of_this_process();
  works(rank, "first");
  const Comm comm = create(rank, "doomed");
  ASSERT_NE(comm, nullptr);
  rank.at("ready");
  rank.hear();
  EXPECT_TRUE(fails(SYMM_PEER, symm_comm_barrier(comm.get(), nullptr), {"rank 2"}));
  const Comm again = create_alone();
  EXPECT_TRUE(adds_up(again.get()));
  EXPECT_EQ(before, signals_of_this_process());
}

TEST(Surroundings, SignalsIgnoredOrNotAreLeftAsTheyWere) {
  for (const char* state : {"ignored", "default"}) {
    RunOptions options;
    options.argument = state;
    Ranks ranks(processes(3), leaves_signals_alone, options);
    ranks.wait_for_all("ready");
    ranks.signal(2, SIGKILL);
    ranks.finish(2);
    ranks.tell_all("go on");
    ranks.finish();
  }
}

std::atomic<int> alarms{0};

// Interrupts whatever this process's unblocked threads are in, all the time.
class AlarmStorm {
 public:
  AlarmStorm() {
    struct sigaction action = {};
    action.sa_handler = [](int) { alarms.fetch_add(1, std::memory_order_relaxed); };
    sigaction(SIGALRM, &action, nullptr);  // without SA_RESTART
    const timeval pause = {0, 1000 * kSlowdown};
    const itimerval timer = {pause, pause};
    setitimer(ITIMER_REAL, &timer, nullptr);
  }
  ~AlarmStorm() {
    const itimerval none = {};
    setitimer(ITIMER_REAL, &none, nullptr);
  }
  AlarmStorm(const AlarmStorm&) = delete;
  AlarmStorm& operator=(const AlarmStorm&) = delete;
};

TEST(Surroundings, SignalsAllTheTimeNeitherFailNorProlongAnyCall) {
  RunOptions options;
  options.address = "tcp://localhost:" + std::to_string(free_port());
  run(
      processes(2),
      [](Rank& rank) {
        const AlarmStorm storm;
        if (rank.rank == 0) sleep_ms(100);
        for (int round = 0; round < 5; ++round) works(rank, "stormy");
        const Comm comm = create(rank, comm_options("waits", 20000, 1500));
        ASSERT_NE(comm, nullptr);
        for (int round = 0; round < 4; ++round) {
          if (round % 2 == rank.rank) sleep_ms(50);  // long enough for the other to fall asleep
          EXPECT_TRUE(adds_up(comm.get()));
          const Window window = alloc(comm.get(), 64);
        }
        rank.at("ready");
        if (rank.rank == 1) {
          // Stays away until the other has given up.
          const Stopwatch clock;
          while (symm_comm_check(comm.get(), nullptr) == SYMM_OK &&
                 clock.seconds() < 10 * kSlowdown)
            sleep_ms(5);
          return;
        }
        const Stopwatch clock;
        EXPECT_TRUE(fails(SYMM_TIMEOUT, symm_comm_barrier(comm.get(), nullptr), {"rank 1"}));
        EXPECT_GT(clock.seconds(), 1.4 * kSlowdown);
        EXPECT_LT(clock.seconds(), 4 * kSlowdown);
        EXPECT_GT(alarms, 50);
      },
      options);
}

// Runs `body` in a thread with a stack of so many bytes.
void on_stack(size_t bytes, std::function<void()> body) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, bytes), 0);
  pthread_t thread;
  ASSERT_EQ(pthread_create(
                &thread, &attributes,
                [](void* argument) -> void* {
                  (*static_cast<std::function<void()>*>(argument))();
                  return nullptr;
                },
                &body),
            0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

TEST(Surroundings, ATinyStackIsEnoughForAnyCall) {
  RunOptions options;
  options.address = "tcp://localhost:" + std::to_string(free_port());
  run(
      processes(2),
      [](Rank& rank) {
        constexpr size_t kTiny = size_t{48 << 10} * kSlowdown;
        // The default of threads that say nothing, as under `ulimit -s`: the library's own too.
        pthread_attr_t tiny;
        pthread_attr_init(&tiny);
        ASSERT_EQ(pthread_attr_setstacksize(&tiny, kTiny), 0);
        ASSERT_EQ(pthread_setattr_default_np(&tiny), 0);
        pthread_attr_destroy(&tiny);
        on_stack(kTiny, [&rank] {
          works(rank, "tiny");
          const Comm comm = create(rank, "message");
          ASSERT_NE(comm, nullptr);
          symm_window* window = nullptr;
          EXPECT_TRUE(
              fails(SYMM_INVALID_ARGUMENT,
                    symm_window_alloc(comm.get(), rank.rank == 0 ? 4096 : 8192, nullptr, &window),
                    {"4096", "8192"}));
          EXPECT_TRUE(adds_up(comm.get()));
        });
      },
      options);
}

}  // namespace
}  // namespace symm_test
