// Ranks of a communicator over the fake driver: threads of this process, one fake GPU each.
#ifndef SYMM_TESTS_UNIT_FAKE_CUDA_RANKS_H_
#define SYMM_TESTS_UNIT_FAKE_CUDA_RANKS_H_

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "capi/symm.h"
#include "core/cuda/reaper.h"
#include "core/deadline.h"
#include "tests/unit/fake_cuda.h"

namespace symm::cuda {

inline symm_comm_options small_options(uint32_t flags = 0) {
  symm_comm_options options{};
  options.size = sizeof options;
  options.scratch_bytes = 32 << 20;
  options.timeout_ms = 20000;
  options.flags = flags;
  return options;
}

inline std::string new_address() {
  char address[SYMM_ADDRESS_SIZE];
  size_t needed = 0;
  EXPECT_EQ(SYMM_OK, symm_address_create("127.0.0.1", address, sizeof address, &needed));
  return address;
}

// Runs body(rank) in a thread a rank.
inline void each_rank(int ranks, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

struct Outcome {
  symm_status status = SYMM_OK;
  std::string message;
};
inline Outcome outcome(symm_status status) {
  return {status, status == SYMM_OK ? "" : symm_last_error()};
}

struct Communicator {
  std::vector<symm_comm*> comm;
  std::vector<Outcome> outcomes;
};

// `device(rank)` for each.
inline Communicator create(const std::vector<int>& devices,
                           const symm_comm_options& options = small_options()) {
  const int size = static_cast<int>(devices.size());
  Communicator result;
  result.comm.resize(devices.size(), nullptr);
  result.outcomes.resize(devices.size());
  const std::string address = new_address();
  each_rank(size, [&](int rank) {
    const auto i = static_cast<size_t>(rank);
    result.outcomes[i] = outcome(
        symm_comm_create(address.c_str(), rank, size, devices[i], &options, &result.comm[i]));
  });
  return result;
}

// A split of all of them, by color(rank) and old rank.
inline Communicator split(const Communicator& whole, const std::function<int(int)>& color) {
  Communicator result;
  result.comm.resize(whole.comm.size(), nullptr);
  result.outcomes.resize(whole.comm.size());
  each_rank(static_cast<int>(whole.comm.size()), [&](int rank) {
    const auto i = static_cast<size_t>(rank);
    result.outcomes[i] =
        outcome(symm_comm_split(whole.comm[i], color(rank), rank, nullptr, &result.comm[i]));
  });
  return result;
}

inline void free_all(Communicator& communicator) {
  for (symm_comm*& comm : communicator.comm) {
    symm_comm_free(comm);
    comm = nullptr;
  }
}

struct Windows {
  std::vector<symm_window*> window;
  std::vector<Outcome> outcomes;
};
inline Windows alloc(const Communicator& communicator, const std::vector<size_t>& bytes) {
  Windows result;
  result.window.resize(bytes.size(), nullptr);
  result.outcomes.resize(bytes.size());
  each_rank(static_cast<int>(bytes.size()), [&](int rank) {
    const auto i = static_cast<size_t>(rank);
    result.outcomes[i] =
        outcome(symm_window_alloc(communicator.comm[i], bytes[i], nullptr, &result.window[i]));
  });
  return result;
}
inline Windows register_all(const Communicator& communicator, const std::vector<void*>& pointers,
                            size_t bytes) {
  Windows result;
  result.window.resize(pointers.size(), nullptr);
  result.outcomes.resize(pointers.size());
  each_rank(static_cast<int>(pointers.size()), [&](int rank) {
    const auto i = static_cast<size_t>(rank);
    result.outcomes[i] = outcome(
        symm_window_register(communicator.comm[i], pointers[i], bytes, nullptr, &result.window[i]));
  });
  return result;
}
// As a kernel of those parameters reports what ended it; `peer` is the rank to blame.
inline void report_error(const Params& params, symm_status status, int peer) {
  params.error->status = static_cast<uint32_t>(-status);
  params.error->peer = peer;
  params.error->mine = params.call;
  std::atomic_ref(params.error->valid).store(1, std::memory_order_release);
}

// Handles end in a thread of the library's: returns once those that were freed have, but for what
// waits for events.
inline void settle() { EXPECT_TRUE(Reaper::acquire()->settle(Deadline::after_ms(10000))); }
inline void free_all(Windows& windows) {
  for (symm_window*& window : windows.window) {
    symm_window_free(window);
    window = nullptr;
  }
}
inline char* data(symm_window* window, int rank) {
  void* pointer = nullptr;
  EXPECT_EQ(SYMM_OK, symm_window_data(window, rank, &pointer)) << symm_last_error();
  return static_cast<char*>(pointer);
}

inline bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 5000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

inline ::testing::AssertionResult nothing_left(const FakeCuda& fake,
                                               const FakeCuda::Alive& expected = {}) {
  if (eventually([&] { return fake.alive() == expected; })) return ::testing::AssertionSuccess();
  const FakeCuda::Alive a = fake.alive();
  return ::testing::AssertionFailure()
         << "left: contexts " << a.contexts << " streams " << a.streams << " events " << a.events
         << " allocations " << a.allocations << " reservations " << a.reservations << " mappings "
         << a.mappings << " pinned " << a.pinned << " ipc " << a.ipc << " user objects "
         << a.user_objects << " pushed contexts " << a.pushed;
}

inline void expect_all(const std::vector<Outcome>& outcomes, symm_status status,
                       const std::string& part = "") {
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    EXPECT_EQ(status, outcomes[rank].status) << "rank " << rank << ": " << outcomes[rank].message;
    EXPECT_NE(std::string::npos, outcomes[rank].message.find(part)) << outcomes[rank].message;
  }
}

}  // namespace symm::cuda

#endif  // SYMM_TESTS_UNIT_FAKE_CUDA_RANKS_H_
