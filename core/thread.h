// Threads of the library's own.
#ifndef SYMM_CORE_THREAD_H_
#define SYMM_CORE_THREAD_H_

#include <cstddef>
#include <functional>

namespace symm {

// Address space only, until it is touched. Thread-local variables of every loaded library are taken
// out of it too.
constexpr size_t kThreadStackBytes = size_t{1} << 20;

// Starts a detached thread; `name` is a literal of at most 15 characters, and `body` must not
// throw. 0, or an errno value. The thread blocks every signal, since the program's handlers run in
// the program's threads. Its stack is large enough for what the library and getaddrinfo() do,
// whatever the program's default for threads is (ulimit -s, pthread_setattr_default_np).
int start_thread(const char* name, std::function<void()> body,
                 size_t stack_bytes = kThreadStackBytes);

}  // namespace symm

#endif  // SYMM_CORE_THREAD_H_
