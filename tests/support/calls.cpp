#include "tests/support/calls.h"

#include "tests/support/places.h"

namespace symm_test {

testing::AssertionResult ok(symm_status status) {
  if (status == SYMM_OK) return testing::AssertionSuccess();
  return testing::AssertionFailure() << symm_status_name(status) << ": " << symm_last_error();
}

testing::AssertionResult mentions_all(const std::string& message,
                                      std::initializer_list<std::string> mentions) {
  for (const std::string& mention : mentions) {
    if (message.find(mention) == std::string::npos) {
      return testing::AssertionFailure() << "no \"" << mention << "\" in \"" << message << "\"";
    }
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult fails(symm_status expected, symm_status got,
                               std::initializer_list<std::string> mentions) {
  if (got == SYMM_OK) {
    return testing::AssertionFailure() << "succeeded, not " << symm_status_name(expected);
  }
  if (got != expected) {
    return testing::AssertionFailure() << symm_status_name(got) << ", not "
                                       << symm_status_name(expected) << ": " << symm_last_error();
  }
  return mentions_all(symm_last_error(), mentions);
}

symm_comm_options comm_options(const char* name, int timeout_ms, int wait_timeout_ms) {
  symm_comm_options options = {};
  options.size = sizeof options;
  options.name = name;
  options.timeout_ms = timeout_ms * kSlowdown;
  options.wait_timeout_ms = wait_timeout_ms * kSlowdown;
  return options;
}

symm_window_options window_options() {
  symm_window_options options = {};
  options.size = sizeof options;
  return options;
}

Comm create(const Rank& rank, const symm_comm_options& options) {
  symm_comm* comm = nullptr;
  EXPECT_TRUE(
      ok(symm_comm_create(rank.address.c_str(), rank.rank, rank.size, SYMM_CPU, &options, &comm)));
  return Comm(comm);
}

Comm create(const Rank& rank, const char* name) {
  return create(rank, comm_options(name, 20000, 20000));
}

std::string served_address() {
  char buffer[SYMM_ADDRESS_SIZE];
  size_t needed = 0;
  EXPECT_TRUE(ok(symm_address_create("127.0.0.1", buffer, sizeof buffer, &needed)));
  return buffer;
}

Comm create_alone() {
  symm_comm* comm = nullptr;
  const std::string address = local_address();
  EXPECT_TRUE(ok(symm_comm_create(address.c_str(), 0, 1, SYMM_CPU, nullptr, &comm)));
  return Comm(comm);
}

Comm split(symm_comm* comm, int color, int key, const symm_comm_options* options) {
  symm_comm* out = nullptr;
  EXPECT_TRUE(ok(symm_comm_split(comm, color, key, options, &out)));
  return Comm(out);
}

Window alloc(symm_comm* comm, size_t bytes) {
  symm_window* window = nullptr;
  EXPECT_TRUE(ok(symm_window_alloc(comm, bytes, nullptr, &window)));
  return Window(window);
}

void* data(const symm_window* window, int rank) {
  void* pointer = nullptr;
  EXPECT_TRUE(ok(symm_window_data(window, rank, &pointer)));
  return pointer;
}

int rank_of(const symm_comm* comm) {
  int32_t rank = -1;
  EXPECT_TRUE(ok(symm_comm_rank(comm, &rank)));
  return rank;
}

int size_of(const symm_comm* comm) {
  int32_t size = -1;
  EXPECT_TRUE(ok(symm_comm_size(comm, &size)));
  return size;
}

testing::AssertionResult adds_up(symm_comm* comm) {
  const int size = size_of(comm);
  const int64_t mine = rank_of(comm) + 1;
  int64_t sum = -1;
  const symm_status status = symm_all_reduce(comm, &mine, &sum, 1, SYMM_INT64, SYMM_SUM, nullptr);
  if (status != SYMM_OK) return ok(status);
  if (sum != int64_t{size} * (size + 1) / 2) {
    return testing::AssertionFailure() << "the sum of 1.." << size << " came out as " << sum;
  }
  return testing::AssertionSuccess();
}

}  // namespace symm_test
