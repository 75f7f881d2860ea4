#include "core/cpu/wait.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "core/deadline.h"
#include "core/text.h"

namespace symm::cpu {
namespace {

// A pause takes 10 to 60 ns. More are no gain even with a CPU for each rank: sched_yield() returns
// at once there.
constexpr int kPauses = 200;

// Of sched_yield() before the first sleep: about 0.1 ms with idle CPUs, and with many ranks on few
// CPUs one yield lets all the others run.
constexpr int kYields = 400;
constexpr int kYieldsBetweenChecks = 8;

// No FUTEX_PRIVATE_FLAG: sleeper and waker may be different processes.
void futex_wait(std::atomic<uint32_t>& bell, uint32_t value) {
  timespec limit{};
  limit.tv_nsec = 1000000;
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&bell), FUTEX_WAIT, value, &limit, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>& bell) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&bell), FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

}  // namespace

Waiter::Waiter(const Arena& arena, const EngineOptions& options,
               const std::atomic<int32_t>& local_fault, std::function<Fault()> describe)
    : arena_(arena),
      fault_(arena.fault()),
      record_(arena.record(options.rank)),
      bells_(&arena.doorbell(0)),
      rank_(options.rank),
      pauses_(options.oversubscribed ? 0 : kPauses),
      timeout_ms_(options.wait_timeout_ms),
      local_fault_(local_fault),
      describe_(std::move(describe)),
      epoch_(options.first_epoch) {}

__attribute__((noinline)) void Waiter::await_slowly(const std::atomic<uint64_t>& word,
                                                    uint64_t want, int peer) {
  const Deadline deadline = Deadline::after_ms(timeout_ms_);
  for (int turn = 0;; ++turn) {
    if (turn >= kYields || turn % kYieldsBetweenChecks == 0) {
      check_faults();
      check_record(peer);
      // Acquire: what the peer posted before it left is visible to the look at the word below.
      const bool left = arena_.record(peer).left.load(std::memory_order_acquire) != 0;
      const bool late = deadline.passed();
      if (word.load(std::memory_order_acquire) == want) return;
      if (left) {
        fail({SYMM_PEER, peer,
              text("rank ", peer, " left the communicator before ", call_text(*call_), " of rank ",
                   rank_, "; every rank must make the same calls before symm_comm_free")});
      }
      if (late) time_out(peer);
    }
    if (turn < kYields) {
      sched_yield();
    } else {
      turn = kYields;  // no overflow in a long wait
      sleep(word, want, peer);
    }
    if (word.load(std::memory_order_acquire) == want) return;
  }
}

void Waiter::sleep(const std::atomic<uint64_t>& word, uint64_t want, int peer) {
  std::atomic<uint32_t>& bell = bells_[rank_];
  const uint32_t value = static_cast<uint32_t>(peer) + 1;
  // Sequentially consistent: on the hardware at hand it keeps the load of the word behind it, which
  // makes a missed wake-up rare.
  bell.store(value, std::memory_order_seq_cst);
  if (word.load(std::memory_order_seq_cst) != want && !raised(fault_)) {
    futex_wait(bell, value);
  }
  bell.store(0, std::memory_order_relaxed);
}

void Waiter::ring(int peer) {
  std::atomic<uint32_t>& bell = bells_[peer];
  // Exchange: of several wakers one pays for the system call.
  if (bell.exchange(0, std::memory_order_relaxed) != 0) futex_wake(bell);
}

void Waiter::check_faults() {
  if (raised(fault_)) throw_fault();
  const int32_t status = local_fault_.load(std::memory_order_acquire);
  if (status == 0) return;
  Fault fault;
  if (describe_) fault = describe_();
  if (fault.status == SYMM_OK) {
    fault = {static_cast<symm_status>(status), kNoRank,
             text("rank ", rank_, "'s process ended the communicator with ", status_name(status),
                  " during ", call_text(*call_))};
  }
  fail(fault);
}

void Waiter::check_record(int peer) {
  const std::optional<Published> other = read(arena_.record(peer));
  if (!other || other->epoch != epoch_ || other->call == *call_) return;
  fail({SYMM_MISMATCH, peer,
        text("rank ", rank_, " called ", call_text(*call_), " while rank ", peer, " called ",
             call_text(other->call),
             "; every rank must make the same collective calls in the same order")});
}

void Waiter::time_out(int peer) {
  std::vector<int> missing;
  for (int rank = 0; rank < size(); ++rank) {
    if (!has_reached(arena_.record(rank), epoch_)) missing.push_back(rank);
  }
  const std::string who =
      text("rank ", rank_, " waited ", timeout_ms_, " ms in ", call_text(*call_));
  if (missing.empty()) {
    fail({SYMM_TIMEOUT, peer,
          text(who, " for rank ", peer,
               ", which is in the same call but makes no progress; is it "
               "stopped or starved of CPU?")});
  }
  fail({SYMM_TIMEOUT, missing.front(),
        text(who, " for ", rank_list(missing), ", which did not call it; see where ",
             missing.size() == 1 ? "that rank is" : "those ranks are",
             ", or raise options.wait_timeout_ms")});
}

void Waiter::check_all(const Call& call) {
  if (raised(fault_)) throw_fault();
  call_ = &call;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank_) check_record(peer);
  }
}

void Waiter::fail(const Fault& fault) {
  raise(fault);
  throw_fault();  // the first one raised, so that all ranks tell the same
}

void Waiter::throw_fault() {
  const std::optional<Fault> fault = read(fault_);
  if (!fault) throw Error(SYMM_INTERNAL, text("rank ", rank_, ": a fault was raised and is gone"));
  throw Error(fault->status, fault->message, fault->rank);
}

void Waiter::raise(const Fault& fault) {
  if (!symm::cpu::raise(fault_, fault)) return;
  for (int peer = 0; peer < size(); ++peer) ring(peer);
}

void Waiter::leave() {
  // Release: all that this rank contributed comes before it.
  record_.left.store(1, std::memory_order_release);
  for (int peer = 0; peer < size(); ++peer) ring(peer);
}

}  // namespace symm::cpu
