// symm's handles as owners, and assertions about its calls.
#ifndef SYMM_TESTS_SUPPORT_CALLS_H_
#define SYMM_TESTS_SUPPORT_CALLS_H_

#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <string>

#include "capi/symm.h"
#include "tests/support/ranks.h"

namespace symm_test {

struct Free {
  void operator()(symm_comm* comm) const { symm_comm_free(comm); }
  void operator()(symm_window* window) const { symm_window_free(window); }
};
using Comm = std::unique_ptr<symm_comm, Free>;
using Window = std::unique_ptr<symm_window, Free>;

// EXPECT_TRUE(ok(symm_...(...))): a failure shows the status and the library's message.
testing::AssertionResult ok(symm_status status);
// EXPECT_TRUE(fails(SYMM_PEER, symm_...(...), {"rank 2"})): that status, and each text in the
// message.
testing::AssertionResult fails(symm_status expected, symm_status got,
                               std::initializer_list<std::string> mentions = {});
// The same for a message that came another way.
testing::AssertionResult mentions_all(const std::string& message,
                                      std::initializer_list<std::string> mentions);

// Options with a name, and deadlines widened by kSlowdown; 0 leaves a default.
symm_comm_options comm_options(const char* name = nullptr, int timeout_ms = 0,
                               int wait_timeout_ms = 0);
symm_window_options window_options();

// The communicator of all ranks of a run. Null, and a failure, if it cannot be.
Comm create(const Rank& rank, const symm_comm_options& options);
Comm create(const Rank& rank, const char* name = nullptr);
// A new address, served by this process until it exits.
std::string served_address();
// A world of one in this process.
Comm create_alone();
Comm split(symm_comm* comm, int color, int key, const symm_comm_options* options = nullptr);
Window alloc(symm_comm* comm, size_t bytes);
// Where this process sees that rank's copy.
void* data(const symm_window* window, int rank);
template <class T>
T* data_as(const symm_window* window, int rank) {
  return static_cast<T*>(data(window, rank));
}

int rank_of(const symm_comm* comm);
int size_of(const symm_comm* comm);

// Every rank adds its rank + 1: true if the sum is right. The communicator works.
testing::AssertionResult adds_up(symm_comm* comm);

}  // namespace symm_test

#endif  // SYMM_TESTS_SUPPORT_CALLS_H_
