#include "core/resolver.h"

#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>

#include "core/error.h"
#include "core/thread.h"

namespace symm {
namespace {

Resolution ask(const std::string& host, int flags) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  Resolution resolution;
  resolution.error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  const int system_error = errno;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, [](addrinfo* list) {
    if (list != nullptr) freeaddrinfo(list);
  });
  if (resolution.error != 0) {
    resolution.detail =
        text("host \"", host, "\" cannot be resolved: ",
             resolution.error == EAI_SYSTEM ? errno_text(system_error)
                                            : std::string(gai_strerror(resolution.error)));
    return resolution;
  }
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    const bool internet = entry->ai_family == AF_INET || entry->ai_family == AF_INET6;
    if (!internet || entry->ai_addrlen > sizeof(sockaddr_storage)) continue;
    SocketAddress address;
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.length = entry->ai_addrlen;
    resolution.addresses.push_back(address);
  }
  if (resolution.addresses.empty()) {
    resolution.error = EAI_NONAME;
    resolution.detail = text("host \"", host, "\" has no IPv4 or IPv6 address");
  }
  return resolution;
}

// A look-up under way. Callers that ask for the same host meanwhile wait for this one: however
// often a connection is tried, a resolver that hangs holds one thread for each name.
struct LookUp {
  std::mutex mutex;
  std::condition_variable finished;
  bool done = false;
  Resolution resolution;
};

struct LookUps {
  std::mutex mutex;
  // By pid too: the thread of a look-up does not exist in a forked child.
  std::map<std::pair<pid_t, std::string>, std::shared_ptr<LookUp>> pending;
};

// Never destroyed: a look-up may outlast main().
LookUps& look_ups() {
  static auto& all = *new LookUps;
  return all;
}

Resolution ask_anyhow(const std::string& host) try {
  Resolution resolution = ask(host, AI_ADDRCONFIG);
  // A machine with nothing but loopback has no "configured" address, and still has localhost.
  if (resolution.error != 0) resolution = ask(host, 0);
  return resolution;
} catch (const std::bad_alloc&) {
  // Thrown on in this thread it would end the process.
  Resolution resolution;
  resolution.error = EAI_MEMORY;
  return resolution;
}

void run(const std::string& host, const std::shared_ptr<LookUp>& look_up) {
  Resolution resolution = ask_anyhow(host);
  {
    const std::lock_guard lock(look_ups().mutex);
    look_ups().pending.erase({getpid(), host});
  }
  const std::lock_guard lock(look_up->mutex);
  look_up->resolution = std::move(resolution);
  look_up->done = true;
  look_up->finished.notify_all();
}

std::shared_ptr<LookUp> start_or_join(const std::string& host) {
  std::unique_lock lock(look_ups().mutex);
  auto& slot = look_ups().pending[{getpid(), host}];
  if (slot != nullptr) return slot;
  slot = std::make_shared<LookUp>();
  const std::shared_ptr<LookUp> look_up = slot;
  if (start_thread("symm-resolver", [host, look_up] { run(host, look_up); }) != 0) {
    // No more threads: better an answer late than none.
    lock.unlock();
    run(host, look_up);
  }
  return look_up;
}

void set_port(Resolution* resolution, uint16_t port) {
  for (SocketAddress& address : resolution->addresses) {
    if (address.family() == AF_INET) {
      reinterpret_cast<sockaddr_in*>(&address.storage)->sin_port = htons(port);
    } else {
      reinterpret_cast<sockaddr_in6*>(&address.storage)->sin6_port = htons(port);
    }
  }
}

}  // namespace

Resolution resolve(const std::string& host, uint16_t port, Deadline deadline) {
  Resolution resolution = ask(host, AI_NUMERICHOST);
  if (resolution.error != 0) {
    const std::shared_ptr<LookUp> look_up = start_or_join(host);
    std::unique_lock lock(look_up->mutex);
    if (look_up->finished.wait_until(lock, deadline.when(), [&] { return look_up->done; })) {
      resolution = look_up->resolution;
    } else {
      resolution.error = EAI_AGAIN;
      resolution.detail = text("host \"", host, "\" cannot be resolved: no answer in time");
    }
  }
  set_port(&resolution, port);
  return resolution;
}

}  // namespace symm
