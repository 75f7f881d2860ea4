// How ranks wait for each other: words posted by one rank and awaited by another.
//
// The fast part of a wait is one load and one comparison; if that fails, some pauses (none where
// ranks outnumber CPUs). Clock, faults, call records and doorbells are looked at only in the slow
// part: sched_yield, then a futex. Every wait ends: by its word, by a fault of any rank, by a
// peer's record that shows another call, by the peer having left, or by the deadline.
//
// The doorbell: a rank about to sleep for peer p stores p + 1 in its own bell, looks at its word
// once more, and sleeps on the bell for a millisecond at most. A rank that has posted a word looks
// at the bell of the reader (a line that nobody writes in the usual case, so it stays in the
// poster's cache) and wakes it if it names this rank. Nothing orders the poster's store of the word
// before its load of the bell (a fence there would cost every call), so a wake-up can be missed:
// the sleep's limit makes that a delay of a millisecond in a wait that was already long. The sleep
// is not on the word itself, because one wait can need any of several words, and because posters
// would then have to look for sleepers in a line that moves.
#ifndef SYMM_CORE_CPU_WAIT_H_
#define SYMM_CORE_CPU_WAIT_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "core/call.h"
#include "core/cpu/arena.h"
#include "core/cpu/engine.h"
#include "core/cpu/fault_block.h"
#include "core/cpu/record.h"

namespace symm::cpu {

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::
                   : "memory");  // "yield" does nothing on most cores; this waits for some cycles
#endif
}

class Waiter {
 public:
  Waiter(const Arena& arena, const EngineOptions& options, const std::atomic<int32_t>& local_fault,
         std::function<Fault()> describe);

  int rank() const { return rank_; }
  int size() const { return arena_.size(); }

  // Starts the next call, which must live until its last wait; throws if the communicator has
  // failed.
  void begin(const Call& call) {
    if (raised(fault_)) [[unlikely]]
      throw_fault();
    call_ = &call;  // not a copy: a vector load of what was just stored word by word stalls
    ++epoch_;
  }

  // Publishes the call: after the first post, where it costs no time, and before the first wait.
  void publish() { symm::cpu::publish(record_, epoch_, *call_); }

  // Blocks until `word`, which `peer` writes, is `want`; what the peer wrote before it can then be
  // read. Throws Error as said above; the fault has then been raised.
  void await(const std::atomic<uint64_t>& word, uint64_t want, int peer) {
    // Acquire: pairs with the release in post().
    if (word.load(std::memory_order_acquire) == want) [[likely]]
      return;
    for (int i = 0; i < pauses_; ++i) {
      pause();
      if (word.load(std::memory_order_acquire) == want) return;
    }
    await_slowly(word, want, peer);
  }

  // Makes everything written so far visible to `peer`, or to all, who await `value` there.
  void post(std::atomic<uint64_t>& word, uint64_t value, int peer) {
    word.store(value, std::memory_order_release);
    // Relaxed: a hint, see above.
    if (bells_[peer].load(std::memory_order_relaxed) == bell()) [[unlikely]]
      ring(peer);
  }
  void post_to_all(std::atomic<uint64_t>& word, uint64_t value) {
    word.store(value, std::memory_order_release);
    for (int peer = 0; peer < size(); ++peer) {
      if (bells_[peer].load(std::memory_order_relaxed) == bell()) [[unlikely]]
        ring(peer);
    }
  }

  // Of the set-up calls, which wait elsewhere. Throws what peers' records or the fault block say.
  void check_all(const Call& call);

  // Any thread.
  void raise(const Fault& fault);
  void leave();

 private:
  uint32_t bell() const { return static_cast<uint32_t>(rank_) + 1; }
  void ring(int peer);
  void await_slowly(const std::atomic<uint64_t>& word, uint64_t want, int peer);
  void sleep(const std::atomic<uint64_t>& word, uint64_t want, int peer);
  void check_faults();
  void check_record(int peer);
  [[noreturn]] void fail(const Fault& fault);
  [[noreturn]] void throw_fault();
  [[noreturn]] void time_out(int peer);

  const Arena arena_;
  FaultBlock& fault_;
  Record& record_;  // this rank's
  std::atomic<uint32_t>* const bells_;
  const int rank_;
  const int pauses_;
  const int64_t timeout_ms_;
  const std::atomic<int32_t>& local_fault_;
  const std::function<Fault()> describe_;
  uint32_t epoch_;
  const Call* call_ = nullptr;  // the present one
};

}  // namespace symm::cpu

#endif  // SYMM_CORE_CPU_WAIT_H_
