// Runs a function on every rank of a job. Ranks live in child processes of the test, one or several
// (threads) in each; a child is this program executed again, never a fork that goes on, so that it
// starts with one thread and no state of the test's. Every run is bounded: past its deadline all
// children are killed and the test fails, saying what each rank was doing.
#ifndef SYMM_TESTS_SUPPORT_RANKS_H_
#define SYMM_TESTS_SUPPORT_RANKS_H_

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/support/pace.h"

namespace symm_test {

// A rank as its own function sees it. EXPECT_ and ASSERT_ work inside and fail the test.
class Rank {
 public:
  int rank = 0;
  int size = 1;
  int process = 0;
  std::string address;
  std::string argument;

  // What this rank is doing now: shown if it hangs, and seen by Ranks::wait_for.
  void at(const std::string& where) const;
  // One more value for Ranks::given.
  void give(const std::string& value) const;
  // The next word of Ranks::tell; waits for it.
  std::string hear() const;

  int channel = -1;  // a socket to the test; -1: standard output (see command_line)
};

// A function without captures: the child finds it again by its distance from a known function.
using Body = void (*)(Rank& rank);

struct Layout {
  int processes = 1;
  int threads = 1;  // ranks in each process: process p has ranks p * threads and up
  int ranks() const { return processes * threads; }
};
inline Layout processes(int count) { return {count, 1}; }
inline Layout threads(int count) { return {1, count}; }
inline Layout mixed(int process_count, int thread_count) { return {process_count, thread_count}; }

struct RunOptions {
  double seconds = 30;   // bound of the whole run, widened by kSlowdown
  std::string address;   // default: a file:// address in a directory of the run's own
  std::string argument;  // handed to every rank
  int size = 0;          // what Rank::size says; 0: the number of ranks
  int uid = 0;           // another user for all ranks, if not 0
  std::function<std::vector<std::string>(int process)> environment;  // "NAME=value"; "NAME" unsets
  std::function<std::string(int process)> network;                   // a name of `ip netns`
};

class Ranks {
 public:
  Ranks(Layout layout, Body body, RunOptions options = {});
  ~Ranks();  // kills what still runs
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  pid_t pid(int rank) const;
  const std::string& directory() const { return directory_; }

  void tell(int rank, const std::string& word);
  void tell_all(const std::string& word);
  // Until that rank has said at(where), now or earlier. False, and a failure, past the bound.
  bool wait_for(int rank, const std::string& where);
  bool wait_for_all(const std::string& where);
  // Signals that rank's process; after SIGKILL it need not finish any more.
  void signal(int rank, int number);
  // Until every process not killed has ended, with status 0 and no failure.
  bool finish();
  bool finish(int rank);  // the same of that rank's process alone

  const std::vector<std::string>& given(int rank) const;
  // given(rank)[index], "" and a failure if it is not there.
  std::string given(int rank, size_t index) const;

 private:
  struct Child;
  struct Seat;
  void start(int process, Body body);
  void pump(int timeout_ms);
  void read_channel(int rank);
  void reap(Child* child, bool wait);
  bool until(const std::function<bool()>& done, const std::string& what);
  std::string where_everybody_is() const;

  Layout layout_;
  RunOptions options_;
  Stopwatch clock_;
  std::string directory_;
  std::vector<Child> children_;
  std::vector<Seat> seats_;
};

// Ranks(...).finish(), and what each rank gave.
std::vector<std::vector<std::string>> run(Layout layout, Body body, RunOptions options = {});

// A shell command that runs `body` as rank `rank` of `size` with its failures on standard output
// and in its exit status: for launchers such as mpirun.
std::string command_line(Body body, int rank, int size, const std::string& address,
                         const std::string& argument);

// For main(): whether this program was started as a rank, and then what its main is.
bool is_rank_process(int argc, char** argv);
int rank_main(int argc, char** argv);

}  // namespace symm_test

#endif  // SYMM_TESTS_SUPPORT_RANKS_H_
