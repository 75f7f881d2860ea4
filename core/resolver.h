// Host names to addresses, under a deadline.
#ifndef SYMM_CORE_RESOLVER_H_
#define SYMM_CORE_RESOLVER_H_

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/deadline.h"

namespace symm {

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t length = 0;

  int family() const { return storage.ss_family; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

struct Resolution {
  int error = 0;  // an EAI_ number, 0 for none; EAI_AGAIN where the deadline came first
  std::string detail;
  std::vector<SocketAddress> addresses;
};

// TCP addresses of `host`, in the order to try. Numbers are read without asking anyone. Names are
// looked up in a thread of their own, because getaddrinfo knows no deadline: a resolver that does
// not answer keeps that thread, never the caller.
Resolution resolve(const std::string& host, uint16_t port, Deadline deadline);

}  // namespace symm

#endif  // SYMM_CORE_RESOLVER_H_
