// A point in time after which a wait gives up. Every wait of the library takes one.
#ifndef SYMM_CORE_DEADLINE_H_
#define SYMM_CORE_DEADLINE_H_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace symm {

using Clock = std::chrono::steady_clock;

class Deadline {
 public:
  explicit Deadline(Clock::time_point when) : when_(when) {}
  static Deadline after_ms(int64_t ms) {
    return Deadline(Clock::now() + std::chrono::milliseconds(ms));
  }

  Clock::time_point when() const { return when_; }
  bool passed() const { return Clock::now() >= when_; }

  // Milliseconds left, rounded up, never negative: what poll() and epoll_wait() take.
  int left_ms() const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(when_ - Clock::now()).count();
    return static_cast<int>(std::clamp<int64_t>(left, 0, INT32_MAX));
  }

  // An equal part of what is left, for the next of `parts` things to be tried in turn: one that
  // swallows packets does not cost the others their turn.
  Deadline share(size_t parts) const {
    const auto now = Clock::now();
    const auto left = std::max(when_ - now, Clock::duration::zero());
    return Deadline(now + left / static_cast<int64_t>(std::max<size_t>(parts, 1)));
  }

  Deadline sooner(Deadline other) const { return Deadline(std::min(when_, other.when_)); }

 private:
  Clock::time_point when_;
};

}  // namespace symm

#endif  // SYMM_CORE_DEADLINE_H_
