#include "core/cuda/reaper.h"

#include "core/process.h"
#include "core/thread.h"

namespace symm::cuda {
namespace {

// How often events and error records are looked at.
constexpr auto kPeriod = std::chrono::milliseconds(2);
constexpr auto kIdlePeriod = std::chrono::hours(1);
constexpr auto kExitWait = std::chrono::milliseconds(500);

constinit std::mutex instance_mutex;
std::weak_ptr<Reaper>& instance() {
  static auto* weak = new std::weak_ptr<Reaper>;
  return *weak;
}
uint64_t instance_generation = 0;

}  // namespace

std::shared_ptr<Reaper> Reaper::acquire() {
  std::lock_guard lock(instance_mutex);
  // A forked child has no thread of its parent's.
  if (instance_generation == process_generation()) {
    if (auto reaper = instance().lock()) return reaper;
  }
  const std::shared_ptr<Reaper> reaper(new Reaper);
  instance() = reaper;
  instance_generation = process_generation();
  return reaper;
}

Reaper::Reaper() {
  if (const int error = start_thread("symm-reaper", [state = state_] { run(state); })) {
    throw Error(SYMM_SYSTEM, text("cannot start a helper thread: ", errno_text(error),
                                  "; raise the limit on threads (ulimit -u)"));
  }
}

// The last user may be something that the thread itself releases, so nobody waits for it here.
Reaper::~Reaper() {
  std::lock_guard lock(state_->mutex);
  state_->stop = true;
  state_->changed.notify_all();
}

void Reaper::hold(std::shared_ptr<void> last, std::shared_ptr<const Event> after) {
  std::lock_guard lock(state_->mutex);
  state_->held.push_back({std::move(last), std::move(after)});
  state_->changed.notify_all();
}

void Reaper::watch(const std::weak_ptr<Watched>& watched) {
  std::lock_guard lock(state_->mutex);
  state_->watched.push_back(watched);
  state_->changed.notify_all();
}

bool Reaper::settle(Deadline deadline) {
  std::unique_lock lock(state_->mutex);
  // The look that is under way may have begun before the caller gave something back.
  const uint64_t enough = state_->looks + 2;
  return state_->changed.wait_until(lock, deadline.when(), [&] {
    if (state_->stop) return true;
    return !state_->working && (state_->held.empty() || state_->looks >= enough);
  });
}

void Reaper::run(const std::shared_ptr<State>& state) {
  // For this thread's whole life: what it asks and releases must neither fail because some thread
  // is capturing nor break that capture.
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  driver().cuThreadExchangeStreamCaptureMode(&mode);
  std::unique_lock lock(state->mutex);
  while (true) {
    // Looked at without the lock: a graph's destructor, in a thread of CUDA's own, waits for it in
    // hold(), and no call of CUDA may wait for that thread meanwhile.
    std::list<State::Held> held;
    held.swap(state->held);
    std::vector<std::shared_ptr<Watched>> watched;
    std::erase_if(state->watched, [&](const std::weak_ptr<Watched>& weak) {
      auto one = weak.lock();
      if (one) watched.push_back(std::move(one));
      return weak.expired();
    });
    if (!held.empty() || !watched.empty()) {
      state->working = true;
      lock.unlock();
      // One by one, in the order of the handles' end: a window before its communicator.
      for (auto one = held.begin(); one != held.end();) {
        const auto next = std::next(one);
        if (!one->after || one->after->is_done()) held.erase(one);
        one = next;
      }
      for (const auto& one : watched) one->look();
      watched.clear();
      lock.lock();
      // Before what has come meanwhile.
      state->held.splice(state->held.begin(), held);
      state->working = false;
      ++state->looks;
      state->changed.notify_all();
    }
    const auto has_ready = [&] {
      for (const State::Held& held : state->held) {
        if (!held.after) return true;
      }
      return false;
    };
    // A stop with work left comes from the exit alone.
    if (state->stop && !has_ready()) return;
    if (has_ready()) continue;
    if (state->held.empty() && state->watched.empty()) {
      // Timed, as condition_variable::wait() is not in the libstdc++ of GCC 11; the loop looks
      // again.
      state->changed.wait_for(lock, kIdlePeriod, [&] {
        return state->stop || !state->held.empty() || !state->watched.empty();
      });
    } else {
      state->changed.wait_for(lock, kPeriod, [&] { return state->stop || has_ready(); });
    }
  }
}

void Reaper::stop_at_exit() noexcept {
  std::shared_ptr<Reaper> reaper;
  {
    std::lock_guard lock(instance_mutex);
    if (instance_generation == process_generation()) reaper = instance().lock();
  }
  if (!reaper) return;
  State& state = *reaper->state_;
  std::unique_lock lock(state.mutex);
  state.stop = true;
  // Kept, not released: destructors would call CUDA, which is ending.
  static auto* kept = new std::list<State::Held>;
  kept->splice(kept->end(), state.held);
  state.watched.clear();
  state.changed.notify_all();
  state.changed.wait_for(lock, kExitWait, [&] { return !state.working; });
  // Its own destructor would do no harm, but whoever runs last here is not known.
  static auto* alive = new std::vector<std::shared_ptr<Reaper>>;
  alive->push_back(std::move(reaper));
}

}  // namespace symm::cuda
