// Calls on one communicator, one at a time.
#ifndef SYMM_CORE_CALL_LOCK_H_
#define SYMM_CORE_CALL_LOCK_H_

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace symm {

// Uncontended it is one exchange and one store, a third of what a mutex costs beside an 8-byte
// all-reduce. Contention is rare (callers order their collective calls), so waiting is not clever.
class CallLock {
 public:
  explicit CallLock(std::atomic<uint32_t>& busy) : busy_(busy) {
    // Acquire, with the release below: what the call before did happens before this one.
    for (int turn = 0; busy_.exchange(1, std::memory_order_acquire) != 0; ++turn) {
      if (turn < 100) {
        sched_yield();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
    }
  }
  ~CallLock() { busy_.store(0, std::memory_order_release); }
  CallLock(const CallLock&) = delete;
  CallLock& operator=(const CallLock&) = delete;

 private:
  std::atomic<uint32_t>& busy_;
};

}  // namespace symm

#endif  // SYMM_CORE_CALL_LOCK_H_
