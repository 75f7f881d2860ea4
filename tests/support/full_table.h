// A process whose descriptor table is full, or nearly.
#ifndef SYMM_TESTS_SUPPORT_FULL_TABLE_H_
#define SYMM_TESTS_SUPPORT_FULL_TABLE_H_

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <vector>

namespace symm_test {

// Leaves this process `spare` descriptors to open, and takes that back.
class FullTable {
 public:
  explicit FullTable(int spare) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit few = {256, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
    // The library's helper thread may still be closing what an earlier call had open.
    for (bool more = true; more;) {
      more = false;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      for (int fd = dup(0); fd >= 0; fd = dup(0), more = true) hoard_.push_back(fd);
    }
    for (; spare > 0 && !hoard_.empty(); --spare) {
      close(hoard_.back());
      hoard_.pop_back();
    }
  }
  ~FullTable() {
    for (const int fd : hoard_) close(fd);
    setrlimit(RLIMIT_NOFILE, &before_);
  }
  FullTable(const FullTable&) = delete;
  FullTable& operator=(const FullTable&) = delete;

 private:
  rlimit before_;
  std::vector<int> hoard_;
};

}  // namespace symm_test

#endif  // SYMM_TESTS_SUPPORT_FULL_TABLE_H_
