// fork(): handles are dead in the child, and the child is nothing to the parent's communicators.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "capi/symm.h"
#include "tests/support/calls.h"
#include "tests/support/footprint.h"
#include "tests/support/pace.h"
#include "tests/support/places.h"

#if defined(SYMM_TEST_ASAN)
namespace {
const pid_t unforked = getpid();
}
// Asked by the leak sanitizer when a process ends. What the threads that a fork leaves behind had
// on their stacks is lost in the child, and so is what the library gives up there on purpose.
extern "C" __attribute__((visibility("default"))) int __lsan_is_turned_off();
extern "C" int __lsan_is_turned_off() { return getpid() != unforked; }
#endif

namespace symm_test {
namespace {

constexpr char kWhyNotTsan[] = "ThreadSanitizer ends a child that a process with threads forked";

enum class End { kPlain, kHandlers };  // _exit, or exit with its handlers

// Starts a forked child that runs `body`; its failures reach the test by the rank's channel.
pid_t fork_child(const std::function<void()>& body, End end) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  alarm(30 * kSlowdown);
  body();
  if (end == End::kPlain) _exit(0);
  exit(0);
}

void expect_clean_end(pid_t pid) {
  int status = -1;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
      << "the child ended with status " << status;
}

void every_call_is_refused(symm_comm* comm, symm_window* window) {
  int32_t number = 42;
  float value = 1;
  size_t size = 42;
  void* pointer = &size;
  symm_comm* out = nullptr;
  symm_window* out_window = nullptr;
  const auto bad = SYMM_INVALID_ARGUMENT;
  EXPECT_TRUE(fails(bad, symm_comm_rank(comm, &number), {"symm_comm_rank", "fork"}));
  EXPECT_TRUE(fails(bad, symm_comm_size(comm, &number), {"fork"}));
  EXPECT_TRUE(fails(bad, symm_comm_device(comm, &number), {"fork"}));
  EXPECT_TRUE(fails(bad, symm_comm_check(comm, &number), {"fork"}));
  EXPECT_TRUE(fails(bad, symm_comm_barrier(comm, nullptr), {"fork"}));
  EXPECT_TRUE(fails(bad, symm_comm_abort(comm), {"fork"}));
  EXPECT_TRUE(fails(bad, symm_comm_nccl(comm, &pointer), {"fork"}));
  EXPECT_TRUE(fails(bad, symm_comm_split(comm, 0, 0, nullptr, &out), {"fork"}));
  EXPECT_TRUE(fails(bad, symm_window_alloc(comm, 64, nullptr, &out_window), {"fork"}));
  EXPECT_TRUE(fails(bad, symm_window_register(comm, &value, 4, nullptr, &out_window), {"fork"}));
  EXPECT_TRUE(fails(bad, symm_window_size(window, &size), {"fork"}));
  EXPECT_TRUE(fails(bad, symm_window_data(window, 0, &pointer), {"fork"}));
  EXPECT_TRUE(fails(bad, symm_all_reduce(comm, &value, &value, 1, SYMM_FLOAT32, SYMM_SUM, nullptr),
                    {"fork"}));
  EXPECT_TRUE(fails(bad,
                    symm_window_all_reduce(window, 0, &value, 1, SYMM_FLOAT32, SYMM_SUM, nullptr),
                    {"fork"}));
  EXPECT_TRUE(fails(bad, symm_report(comm, nullptr, 0, &size), {"fork"}));
  EXPECT_TRUE(
      fails(bad, symm_plan(comm, nullptr, 1, SYMM_FLOAT32, SYMM_SUM, nullptr, 0, &size), {"fork"}));
  EXPECT_EQ(number, 42);
  EXPECT_EQ(pointer, &size);
  symm_window_free(window);
  symm_comm_free(comm);
}

TEST(Fork, HandlesAreDeadInTheChildAndTheParentNoticesNothing) {
  if (kThreadSanitizer) GTEST_SKIP() << kWhyNotTsan;
  run(processes(3), [](Rank& rank) {
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    const Window window = alloc(comm.get(), 64);
    for (const End end : {End::kPlain, End::kHandlers}) {
      *data_as<int>(window.get(), rank.rank) = 1;
      const pid_t child = fork_child([&] { every_call_is_refused(comm.get(), window.get()); }, end);
      EXPECT_TRUE(adds_up(comm.get()));
      expect_clean_end(child);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      // The child freed its handles and exited: neither is the parent's leaving.
      EXPECT_TRUE(ok(symm_comm_check(comm.get(), nullptr)));
      EXPECT_TRUE(adds_up(comm.get()));
      const Window next = alloc(comm.get(), 64);
      int sum = 0;
      EXPECT_TRUE(
          ok(symm_window_all_reduce(window.get(), 0, &sum, 1, SYMM_INT32, SYMM_SUM, nullptr)));
      EXPECT_EQ(sum, 3);
    }
  });
}

TEST(Fork, AChildThatEndsBadlyIsNothingToTheParentsRanks) {
  if (kThreadSanitizer) GTEST_SKIP() << kWhyNotTsan;
  run(processes(2), [](Rank& rank) {
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    const pid_t child = fork_child([] { raise(SIGKILL); }, End::kPlain);
    int status = 0;
    waitpid(child, &status, 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_TRUE(adds_up(comm.get()));
    EXPECT_TRUE(ok(symm_comm_check(comm.get(), nullptr)));
  });
}

TEST(Fork, TheChildHoldsNoneOfTheParentsSocketsAndWindows) {
  if (kThreadSanitizer) GTEST_SKIP() << kWhyNotTsan;
  run(processes(2), [](Rank& rank) {
    const size_t before = open_fds();
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    const Window window = alloc(comm.get(), 4096);
    expect_clean_end(fork_child([&] { EXPECT_LE(open_fds(), before); }, End::kPlain));
    EXPECT_TRUE(ok(symm_comm_barrier(comm.get(), nullptr)));
  });
}

TEST(Fork, TheChildMayHaveCommunicatorsOfItsOwn) {
  if (kThreadSanitizer) GTEST_SKIP() << kWhyNotTsan;
  RunOptions options;
  options.argument = served_address();
  run(
      processes(2),
      [](Rank& rank) {
        const Comm comm = create(rank);
        ASSERT_NE(comm, nullptr);
        // The children meet each other, at an address of the test's and at one of their parents'.
        const pid_t child = fork_child(
            [&] {
              for (const std::string& address : {rank.argument, rank.address}) {
                const symm_comm_options chosen = comm_options("children", 20000, 20000);
                symm_comm* own = nullptr;
                ASSERT_TRUE(ok(symm_comm_create(address.c_str(), rank.rank, rank.size, SYMM_CPU,
                                                &chosen, &own)));
                const Comm owner(own);
                const Window window = alloc(own, 4096);
                EXPECT_TRUE(adds_up(own));
                EXPECT_TRUE(ok(symm_comm_barrier(own, nullptr)));
              }
            },
            End::kHandlers);
        EXPECT_TRUE(adds_up(comm.get()));
        expect_clean_end(child);
        EXPECT_TRUE(adds_up(comm.get()));
      },
      options);
}

TEST(Fork, WhileAnotherThreadIsInsideACallHurtsNeither) {
  if (kThreadSanitizer) GTEST_SKIP() << kWhyNotTsan;
  run(processes(2), [](Rank& rank) {
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    std::atomic<bool> stop{false};
    std::thread caller([&] {
      const Comm busy = create(rank, "busy");
      for (int64_t go_on = 1; go_on != 0;) {
        int64_t mine = rank.rank == 0 && stop ? 0 : 1;
        ASSERT_TRUE(
            ok(symm_all_reduce(busy.get(), &mine, &go_on, 1, SYMM_INT64, SYMM_MIN, nullptr)));
        const Window window = alloc(busy.get(), 128);
      }
    });
    for (int i = 0; i < 20; ++i) {
      // A lock that the other thread held at the fork must not stop the child.
      expect_clean_end(fork_child(
          [&] {
            int32_t number = 0;
            EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT, symm_comm_rank(comm.get(), &number)));
            EXPECT_TRUE(adds_up(create_alone().get()));
          },
          i % 2 == 0 ? End::kPlain : End::kHandlers));
    }
    stop = true;
    caller.join();
    EXPECT_TRUE(adds_up(comm.get()));
  });
}

TEST(Fork, BeforeTheFirstCallChangesNothing) {
  if (kThreadSanitizer) GTEST_SKIP() << kWhyNotTsan;
  run(processes(2), [](Rank& rank) {
    // Rank 1 lives in a forked child.
    const auto body = [&] {
      const Comm comm = create(rank);
      ASSERT_NE(comm, nullptr);
      EXPECT_TRUE(adds_up(comm.get()));
      EXPECT_TRUE(ok(symm_comm_barrier(comm.get(), nullptr)));
    };
    if (rank.rank == 0) {
      body();
    } else {
      expect_clean_end(fork_child(body, End::kHandlers));
    }
  });
}

TEST(Fork, AServedAddressStaysTheParents) {
  if (kThreadSanitizer) GTEST_SKIP() << kWhyNotTsan;
  run(processes(1), [](Rank&) {
    const std::string address = served_address();
    expect_clean_end(fork_child([] {}, End::kHandlers));
    symm_comm* comm = nullptr;
    ASSERT_TRUE(ok(symm_comm_create(address.c_str(), 0, 1, SYMM_CPU, nullptr, &comm)));
    EXPECT_TRUE(adds_up(comm));
    symm_comm_free(comm);
  });
}

}  // namespace
}  // namespace symm_test
