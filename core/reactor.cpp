#include "core/reactor.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <future>
#include <thread>

#include "core/error.h"
#include "core/process.h"
#include "core/thread.h"

namespace symm {
namespace {

// Never destroyed: the helper thread may outlive static destructors.
struct Globals {
  Reactor* current = nullptr;  // guarded by kReactor
  std::vector<int> fds;        // of every reactor that has not ended yet; guarded by kWatchedFds
};
Globals& globals() {
  static Globals* instance = new Globals;
  return *instance;
}
std::mutex& current_mutex() { return global_mutex(GlobalLock::kReactor); }
std::mutex& fds_mutex() { return global_mutex(GlobalLock::kWatchedFds); }

void note_opened(int fd) {
  std::lock_guard lock(fds_mutex());
  globals().fds.push_back(fd);
}

void note_closed(int fd) {
  std::lock_guard lock(fds_mutex());
  std::erase(globals().fds, fd);
}

}  // namespace

std::shared_ptr<Reactor> Reactor::acquire() {
  install_process_handlers();
  std::lock_guard lock(current_mutex());
  if (globals().current == nullptr) {
    auto* reactor = new Reactor;
    if (const int error = start_thread("symm-helper", [reactor] { reactor->run(); })) {
      delete reactor;
      throw Error(SYMM_SYSTEM, text("cannot start the helper thread: ", errno_text(error),
                                    "; raise the limit on threads (ulimit -u)"));
    }
    globals().current = reactor;
  }
  Reactor* reactor = globals().current;
  ++reactor->users_;
  const uint64_t generation = process_generation();
  return std::shared_ptr<Reactor>(reactor, [generation](Reactor* r) {
    // In a forked child the reactor of the parent is a memory image without its thread.
    if (generation == process_generation()) release(r);
  });
}

void Reactor::release(Reactor* reactor) {
  // Under the lock up to the wake: the helper thread deletes the reactor under it, and not before.
  std::lock_guard lock(current_mutex());
  --reactor->users_;
  reactor->wake();
}

Reactor::Reactor()
    : epoll_(epoll_create1(EPOLL_CLOEXEC)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!epoll_ || !wake_) {
    throw Error(SYMM_SYSTEM, text("epoll_create1 or eventfd: ", errno_text(errno)));
  }
  note_opened(epoll_.get());
  note_opened(wake_.get());
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = wake_.get();
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event) != 0) {
    const int error = errno;
    note_closed(epoll_.get());
    note_closed(wake_.get());
    throw Error(SYMM_SYSTEM, text("epoll_ctl: ", errno_text(error)));
  }
}

Reactor::~Reactor() {
  note_closed(epoll_.get());
  note_closed(wake_.get());
}

void Reactor::wake() {
  const uint64_t one = 1;
  // EAGAIN means that the counter is full, so the thread wakes anyway.
  [[maybe_unused]] const ssize_t n = write(wake_.get(), &one, sizeof one);
}

void Reactor::post(Task task) {
  {
    std::lock_guard lock(tasks_mutex_);
    tasks_.push_back(std::move(task));
  }
  wake();
}

void Reactor::run_and_wait(Task task) {
  if (std::this_thread::get_id() == thread_.load(std::memory_order_relaxed)) {
    task();
    return;
  }
  std::promise<void> done;
  post([&] {
    try {
      task();
      done.set_value();
    } catch (...) {
      done.set_exception(std::current_exception());
    }
  });
  done.get_future().get();
}

bool Reactor::idle() const { return handlers_.empty() && timers_.empty(); }

void Reactor::run() {
  thread_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  for (;;) {
    run_tasks();
    run_timers();
    disposed_.clear();
    if (idle()) {
      std::unique_lock lock(current_mutex());
      std::unique_lock tasks(tasks_mutex_);
      if (users_ == 0 && tasks_.empty()) {
        globals().current = nullptr;
        tasks.unlock();
        // Still under the lock, so that a fork finds either all of its fds or none.
        delete this;
        return;
      }
    }
    wait_for_events();
  }
}

void Reactor::run_tasks() {
  std::vector<Task> tasks;
  {
    std::lock_guard lock(tasks_mutex_);
    tasks.swap(tasks_);
  }
  for (Task& task : tasks) {
    task();
    task = nullptr;
  }
}

void Reactor::run_timers() {
  const auto now = Clock::now();
  while (!timers_.empty() && timers_.begin()->first.first <= now) {
    auto node = timers_.extract(timers_.begin());
    node.mapped()();
  }
}

void Reactor::wait_for_events() {
  int timeout = -1;
  if (!timers_.empty()) timeout = Deadline(timers_.begin()->first.first).left_ms();
  epoll_event events[64];
  const int n = epoll_wait(epoll_.get(), events, 64, timeout);
  for (int i = 0; i < n; ++i) {
    const int fd = events[i].data.fd;
    if (fd == wake_.get()) {
      uint64_t count;
      [[maybe_unused]] const ssize_t got = read(wake_.get(), &count, sizeof count);
      continue;
    }
    // A handler before this one may have unwatched the fd; one that opened another with the same
    // number gets a spurious event, which every handler stands.
    const auto found = handlers_.find(fd);
    if (found == handlers_.end()) continue;
    const std::shared_ptr<Handler> handler = found->second;
    (*handler)(events[i].events);
  }
}

void Reactor::watch(int fd, uint32_t events, Handler handler) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    throw Error(SYMM_SYSTEM, text("epoll_ctl: ", errno_text(errno)));
  }
  note_opened(fd);
  handlers_[fd] = std::make_shared<Handler>(std::move(handler));
}

void Reactor::rewatch(int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void Reactor::unwatch(int fd) {
  const auto found = handlers_.find(fd);
  if (found == handlers_.end()) return;
  // The handler may be the one that is running and may own what calls us.
  disposed_.push_back(std::move(found->second));
  handlers_.erase(found);
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  note_closed(fd);
}

Reactor::Timer Reactor::at(Clock::time_point when, Task task) {
  const Timer timer{when, next_timer_++};
  timers_.emplace(timer, std::move(task));
  return timer;
}

void Reactor::cancel(const Timer& timer) { timers_.erase(timer); }

void Reactor::after_fork_in_child() {
  for (const int fd : globals().fds) close(fd);
  globals().fds.clear();
  // The parent's reactor stays behind as memory nobody runs; a new one starts on demand.
  globals().current = nullptr;
}

void Reactor::flush_at_exit() {
  struct Flush {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
  };
  const auto flush = std::make_shared<Flush>();
  {
    std::lock_guard lock(current_mutex());
    Reactor* reactor = globals().current;
    if (reactor == nullptr) return;
    // Polls, since it happens once in a process's life: a task that posts itself again would spin.
    auto look = std::make_shared<Task>();
    *look = [reactor, flush, weak = std::weak_ptr<Task>(look)] {
      if (reactor->unsent_.load(std::memory_order_relaxed) == 0) {
        std::lock_guard flush_lock(flush->mutex);
        flush->done = true;
        flush->changed.notify_all();
      } else if (const auto again = weak.lock()) {
        reactor->at(Clock::now() + std::chrono::milliseconds(1), [again] { (*again)(); });
      }
    };
    reactor->post([look] { (*look)(); });
  }
  std::unique_lock lock(flush->mutex);
  flush->changed.wait_for(lock, std::chrono::seconds(2), [&] { return flush->done; });
}

}  // namespace symm
