// Facts about this process that change in a forked child, and what must happen at fork and at exit.
#ifndef SYMM_CORE_PROCESS_H_
#define SYMM_CORE_PROCESS_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

namespace symm {

class Fd;

// Grows by one in every forked child. A handle remembers the number it was made under; another
// number means that it belongs to an ancestor, whose sockets and helper thread are not here.
uint64_t process_generation();

// 32 random hex digits, other ones in a forked child: tells processes apart across pid name spaces.
std::string process_identity();

// The locks of what a process has once. A fork holds them all, in this order, which is also the
// order in which they nest: in the child none is left locked by a thread that is not there.
enum class GlobalLock {
  kServedAddresses,
  kListeners,
  kStars,
  kMemory,
  kProcess,
  kReactor,
  kWatchedFds
};
std::mutex& global_mutex(GlobalLock which);

// What takes part in a clean exit: called once, from exit(), in no particular thread.
class ExitListener {
 public:
  virtual ~ExitListener() = default;
  virtual void process_exits() noexcept = 0;
};
void add_exit_listener(const std::shared_ptr<ExitListener>& listener);

// Installs the fork and exit handlers; every entry that makes a handle calls it. Idempotent.
void install_process_handlers();

// A descriptor of this process that becomes readable when it ends; null before Linux 5.3.
std::shared_ptr<Fd> open_own_pidfd();

}  // namespace symm

#endif  // SYMM_CORE_PROCESS_H_
