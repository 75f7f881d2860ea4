// Another program, run in an environment of its own and within a bound.
#ifndef SYMM_TESTS_SUPPORT_PROGRAM_H_
#define SYMM_TESTS_SUPPORT_PROGRAM_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "tests/support/pace.h"

namespace symm_test {

struct Ended {
  int status = -1;  // as a shell gives it: 128 and the signal's number for a signal
  std::string output;
  double seconds = 0;
};

// Its standard output is read, its standard error is the test's. It leads a process group, which is
// killed with this.
class Program {
 public:
  // `environment` is all that it has, as "NAME=value". The program is looked for in PATH.
  // `output`, if not -1, gets its standard output instead.
  Program(std::vector<std::string> command, std::vector<std::string> environment, int output = -1);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Waits for its end. Past `seconds`, widened by kSlowdown, it is killed and the test fails.
  Ended finish(double seconds = 60);

 private:
  std::string command_;
  pid_t pid_ = -1;
  int output_ = -1;
  Stopwatch clock_;
};

// `chosen` and what any program needs of this one's environment: PATH and the like, no launcher's
// variables, nothing of CUDA and NCCL.
std::vector<std::string> plain_environment(std::vector<std::string> chosen);

// The path of what was built beside this test program, "" where it is not there.
std::string built(const std::string& relative);

}  // namespace symm_test

#endif  // SYMM_TESTS_SUPPORT_PROGRAM_H_
