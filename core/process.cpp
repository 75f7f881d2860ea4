#include "core/process.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "core/error.h"
#include "core/memory.h"
#include "core/reactor.h"
#include "core/socket.h"

namespace symm {
namespace {

std::atomic<uint64_t> generation{1};

constexpr int kLocks = static_cast<int>(GlobalLock::kWatchedFds) + 1;
constinit std::mutex locks[kLocks];

// Guarded by kProcess. Never destroyed: exit handlers and the helper thread may outlive static
// destructors.
struct Shared {
  std::string identity;
  std::vector<std::weak_ptr<ExitListener>> listeners;
  std::vector<std::shared_ptr<ExitListener>> exiting;
};
Shared& shared() {
  static Shared* instance = new Shared;
  return *instance;
}

void before_fork() {
  for (std::mutex& lock : locks) lock.lock();
}

void after_fork_in_parent() {
  for (int i = kLocks - 1; i >= 0; --i) locks[i].unlock();
}

void after_fork_in_child() {
  // Only this thread exists here. Copies of the parent's sockets must go: while they are open, the
  // parent's death would go unseen by its peers.
  Reactor::after_fork_in_child();
  close_window_memory_after_fork();
  shared().identity.clear();
  generation.fetch_add(1, std::memory_order_relaxed);
  for (int i = kLocks - 1; i >= 0; --i) locks[i].unlock();
}

void at_exit() {
  std::vector<std::shared_ptr<ExitListener>> listeners;
  {
    std::lock_guard lock(global_mutex(GlobalLock::kProcess));
    for (const auto& weak : shared().listeners) {
      if (auto listener = weak.lock()) listeners.push_back(std::move(listener));
    }
  }
  for (const auto& listener : listeners) listener->process_exits();
  // The goodbyes are queued in the helper thread; without them peers would take the exit for a
  // death.
  Reactor::flush_at_exit();
  // Destroying what the program left alive is not this handler's business, and other threads may
  // still use it: the last references are given up without running destructors.
  std::lock_guard lock(global_mutex(GlobalLock::kProcess));
  shared().exiting = std::move(listeners);
}

}  // namespace

std::mutex& global_mutex(GlobalLock which) { return locks[static_cast<int>(which)]; }

uint64_t process_generation() { return generation.load(std::memory_order_relaxed); }

std::string process_identity() {
  std::lock_guard lock(global_mutex(GlobalLock::kProcess));
  if (shared().identity.empty()) shared().identity = random_hex(16);
  return shared().identity;
}

void add_exit_listener(const std::shared_ptr<ExitListener>& listener) {
  std::lock_guard lock(global_mutex(GlobalLock::kProcess));
  std::erase_if(shared().listeners, [](const auto& weak) { return weak.expired(); });
  shared().listeners.push_back(listener);
}

void install_process_handlers() {
  static std::once_flag once;
  std::call_once(once, [] {
    shared();
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    std::atexit(at_exit);
  });
}

std::shared_ptr<Fd> open_own_pidfd() {
#ifdef SYS_pidfd_open
  auto fd = std::make_shared<Fd>(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  if (*fd) return fd;
  if (errno == EMFILE || errno == ENFILE) {
    throw Error(SYMM_SYSTEM, text("pidfd_open: ", errno_text(errno)));
  }
#endif
  return nullptr;
}

}  // namespace symm
