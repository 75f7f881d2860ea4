// The process's one helper thread: an epoll loop that serves meetings, stars and lifelines.
//
// It is started by the first user and ends by itself when the last one is gone and nothing is left
// to watch. Everything that is watched lives in that thread: other threads only post() tasks to it.
// It never blocks, and every signal is blocked in it.
#ifndef SYMM_CORE_REACTOR_H_
#define SYMM_CORE_REACTOR_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/deadline.h"
#include "core/socket.h"

namespace symm {

class Reactor {
 public:
  using Task = std::function<void()>;
  using Handler = std::function<void(uint32_t events)>;
  using Timer = std::pair<Clock::time_point, uint64_t>;

  // The running one, or a new one. The pointer counts as a user until it is released.
  static std::shared_ptr<Reactor> acquire();

  // From any thread: runs `task` in the helper thread, in the order of posting.
  void post(Task task);
  // The same, and returns once it has run, or throws what it threw; at once in the helper thread
  // itself. A posted task must not throw.
  void run_and_wait(Task task);

  // The rest is for the helper thread. The fd stays its owner's, who calls unwatch() before closing
  // it.
  void watch(int fd, uint32_t events, Handler handler);
  void rewatch(int fd, uint32_t events);
  void unwatch(int fd);
  Timer at(Clock::time_point when, Task task);
  void cancel(const Timer& timer);
  // For objects that are done but are still on the stack of a handler: destroyed after it returned.
  void dispose(std::shared_ptr<void> object) { disposed_.push_back(std::move(object)); }

  // Closes the parent's watched fds in a forked child; kReactor and kWatchedFds are held.
  static void after_fork_in_child();
  // Waits, two seconds at most, until what was posted has been sent.
  static void flush_at_exit();

  // What is queued but not yet sent, over all connections: kept by Connection, whose last reference
  // may go in any thread.
  void add_unsent(int64_t frames) { unsent_.fetch_add(frames, std::memory_order_relaxed); }

 private:
  Reactor();
  ~Reactor();
  static void release(Reactor* reactor);
  void run();
  void run_tasks();
  void run_timers();
  void wait_for_events();
  bool idle() const;
  void wake();

  Fd epoll_;
  Fd wake_;
  std::atomic<std::thread::id> thread_{};

  std::mutex tasks_mutex_;
  std::vector<Task> tasks_;

  // Only in the helper thread; the fork handler has a list of the fds of its own.
  std::map<int, std::shared_ptr<Handler>> handlers_;
  std::map<Timer, Task> timers_;
  uint64_t next_timer_ = 0;
  std::atomic<int64_t> unsent_{0};
  std::vector<std::shared_ptr<void>> disposed_;

  int users_ = 0;  // guarded by GlobalLock::kReactor
};

}  // namespace symm

#endif  // SYMM_CORE_REACTOR_H_
