// The controls of a libnccl.so.2 that is not NCCL: ranks are threads of one process, memory is the
// host's, and it can be told to be old, to lack windows, to fail or to hang. Found by
// dlsym("fake_nccl").
#ifndef SYMM_TESTS_NCCL_FAKE_NCCL_H_
#define SYMM_TESTS_NCCL_FAKE_NCCL_H_

#include <atomic>

// NCCL's threads of several ranks look at them while a test sets them.
struct FakeNccl {
  // What to be. Set before the call that is to see it.
  std::atomic<int> version{22809};        // ncclGetVersion's
  std::atomic<int> null_window_rank{-1};  // registers with success and no window; -2: all, -1: none
  std::atomic<int> asynchronous_error{0};       // ncclCommGetAsyncError's, of every communicator
  std::atomic<const char*> fail_call{nullptr};  // this function ...
  std::atomic<int> fail_rank{0};                // ... on this rank (-1: on every rank) ...
  std::atomic<int> fail_result{0};              // ... gives that ncclResult_t
  std::atomic<const char*> hang_call{nullptr};  // waits for release() or its communicator's abort
  std::atomic<int> hang_rank{0};
  std::atomic<int> enqueue_only{0};  // ncclAllReduce returns at once and does nothing
  // Calls that can be non-blocking give ncclInProgress, and ncclCommGetAsyncError does so too for
  // as many times.
  std::atomic<int> in_progress{0};
  std::atomic<int> slow_destroy_ms{0};  // ncclCommDestroy takes as long, and says so on stderr
  void (*release)() = nullptr;
  void (*reset)() = nullptr;  // as it was at first; counts too, but of what is alive

  // What happened.
  std::atomic<int> communicators{0};  // alive
  std::atomic<int> windows{0};        // alive
  std::atomic<int> initialised{0}, destroyed{0}, aborted{0}, reductions{0}, registrations{0};
  std::atomic<int> unique_ids{0};
  std::atomic<int> destroying{0};    // calls of ncclCommDestroy that have begun
  std::atomic<int> misused{0};       // calls with a communicator or window that is gone
  std::atomic<int> overlapping{0};   // calls on a communicator while another one was in it
  std::atomic<int> ended_inside{0};  // communicators that ended while a call was in them
  // By rank: R for a window that was registered, D for one that was taken back.
  char order[8][64] = {};
};

extern "C" FakeNccl* fake_nccl();

#endif  // SYMM_TESTS_NCCL_FAKE_NCCL_H_
