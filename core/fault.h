// The sticky error of a communicator in this process: the first fault stays.
#ifndef SYMM_CORE_FAULT_H_
#define SYMM_CORE_FAULT_H_

#include <atomic>
#include <mutex>

#include "core/messages.h"

namespace symm {

class FaultBox {
 public:
  // True if this was the first.
  bool set(const Failure& failure) {
    std::lock_guard lock(mutex_);
    if (failure_.status != SYMM_OK) return false;
    failure_ = failure;
    // Release: whoever reads the word without the lock may read what led to it. Waits poll it.
    word_.store(failure.status, std::memory_order_release);
    return true;
  }

  Failure get() const {
    std::lock_guard lock(mutex_);
    return failure_;
  }

  // Non-zero once failed: what the engine's waits look at.
  const std::atomic<int32_t>& word() const { return word_; }
  bool is_set() const { return word_.load(std::memory_order_acquire) != SYMM_OK; }

 private:
  mutable std::mutex mutex_;
  Failure failure_;
  std::atomic<int32_t> word_{SYMM_OK};
};

}  // namespace symm

#endif  // SYMM_CORE_FAULT_H_
