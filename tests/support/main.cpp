// main() of every test program: a rank of some test, or the tests themselves.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "tests/support/pace.h"
#include "tests/support/ranks.h"

namespace {

char running[256] = "";

extern "C" void on_alarm(int) {
  // Only async-signal-safe calls: the process may hang anywhere, in the allocator too.
  constexpr char kText[] = "\nthe test did not end within its bound: ";
  (void)!write(STDERR_FILENO, kText, sizeof kText - 1);
  (void)!write(STDERR_FILENO, running, strlen(running));
  (void)!write(STDERR_FILENO, "\n", 1);
  _exit(3);
}

// The last resort against a test that hangs outside its ranks.
class Watchdog : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& test) override {
    snprintf(running, sizeof running, "%s.%s", test.test_suite_name(), test.name());
    alarm(120 * symm_test::kSlowdown);
  }
  void OnTestEnd(const testing::TestInfo&) override { alarm(0); }
};

}  // namespace

int main(int argc, char** argv) {
  if (symm_test::is_rank_process(argc, argv)) return symm_test::rank_main(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  testing::UnitTest::GetInstance()->listeners().Append(new Watchdog);
  signal(SIGALRM, on_alarm);
  return RUN_ALL_TESTS();
}
