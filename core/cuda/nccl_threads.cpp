#include "core/cuda/nccl_threads.h"

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "core/process.h"
#include "core/thread.h"

namespace symm::cuda {
namespace {

// At exit, for what ends in other threads.
constexpr auto kExitWait = std::chrono::seconds(5);
// NCCL is written for threads of programs.
constexpr size_t kStackBytes = size_t{8} << 20;

// Never destroyed: threads that were left behind may outlive static destructors.
struct Threads {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t generation = process_generation();
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
  std::unique_lock lock(all.mutex);
  if (all.exiting || all.generation != process_generation()) return;
  all.exiting = true;
  all.changed.wait_for(lock, kExitWait, [&] { return all.running == 0; });
}

}  // namespace

int start_nccl_thread(std::function<void()> body) {
  if (!enter()) {
    [[maybe_unused]] auto* lost = new auto(std::move(body));
    return ECANCELED;
  }
  const int error = start_thread(
      "symm-nccl",
      [body = std::move(body)]() mutable {
        body();
        body = nullptr;  // what it holds goes before it counts as over
        leave();
      },
      kStackBytes);
  if (error != 0) leave();
  return error;
}

InNccl::InNccl() : entered_(enter()) {}
InNccl::~InNccl() {
  if (entered_) leave();
}

void end_before_nccl(bool communicator_made) {
  static std::once_flag loaded, made;
  std::call_once(communicator_made ? made : loaded, [] { std::atexit(at_exit); });
}

}  // namespace symm::cuda
