// What this process holds of the system, to see that nothing is left behind.
#ifndef SYMM_TESTS_SUPPORT_FOOTPRINT_H_
#define SYMM_TESTS_SUPPORT_FOOTPRINT_H_

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace symm_test {

struct Footprint {
  std::vector<std::string> fds;           // what each leads to
  std::vector<std::string> mappings;      // of shared memory
  std::vector<std::string> unix_sockets;  // with a name
  std::vector<std::string> shm;           // files of /dev/shm called after symm
  int threads = 0;
  int children = 0;
};

Footprint footprint();
// True once the footprint is no larger than `before`: what is freed may go a moment later.
testing::AssertionResult returns_to(const Footprint& before, double seconds = 5);

size_t open_fds();
size_t resident_bytes();

}  // namespace symm_test

#endif  // SYMM_TESTS_SUPPORT_FOOTPRINT_H_
