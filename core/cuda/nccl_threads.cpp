#include "core/cuda/nccl_threads.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>
#include <utility>

#include "core/process.h"
#include "core/thread.h"

namespace symm::cuda {
namespace {

// At exit, for what ends in other threads.
constexpr auto kExitWait = std::chrono::seconds(5);
// NCCL is written for threads of programs.
constexpr size_t kStackBytes = size_t{8} << 20;
// Registrations of the handler, which does its work once.
constexpr int kMostHandlers = 32;

// Never destroyed: threads that were left behind may outlive static destructors.
struct Threads {
  std::mutex mutex;
  std::condition_variable changed;
  // Of the process whose threads are counted. Asked without the lock too: in a forked child a
  // thread that is not there may have it.
  std::atomic<uint64_t> generation{process_generation()};
  int running = 0;
  bool exiting = false;
};
Threads& threads() {
  static auto* instance = new Threads;
  return *instance;
}

bool enter() {
  Threads& all = threads();
  std::lock_guard lock(all.mutex);
  if (all.exiting) return false;
  if (all.generation != process_generation()) {
    // A forked child, where the parent's threads are not.
    all.generation = process_generation();
    all.running = 0;
  }
  ++all.running;
  return true;
}

void leave() {
  Threads& all = threads();
  std::lock_guard lock(all.mutex);
  --all.running;
  all.changed.notify_all();
}

void at_exit() {
  Threads& all = threads();
  if (all.generation != process_generation()) return;
  std::unique_lock lock(all.mutex);
  if (all.exiting) return;
  all.exiting = true;
  all.changed.wait_for(lock, kExitWait, [&] { return all.running == 0; });
}

}  // namespace

int start_nccl_thread(std::function<void()> body) {
  if (!enter()) {
    [[maybe_unused]] auto* lost = new auto(std::move(body));
    return ECANCELED;
  }
  int error = ENOMEM;
  try {
    error = start_thread(
        "symm-nccl",
        [body = std::move(body)]() mutable {
          body();
          body = nullptr;  // what it holds goes before it counts as over
          leave();
        },
        kStackBytes);
  } catch (const std::bad_alloc&) {
    leave();
    throw;
  }
  if (error != 0) leave();
  return error;
}

InNccl::InNccl() : entered_(enter()) {}
InNccl::~InNccl() {
  if (entered_) leave();
}

void end_before_nccl() noexcept {
  static std::atomic<int> registered{0};
  if (registered.load(std::memory_order_relaxed) >= kMostHandlers) return;
  if (registered.fetch_add(1, std::memory_order_relaxed) < kMostHandlers) std::atexit(at_exit);
}

}  // namespace symm::cuda
