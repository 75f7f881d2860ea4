// File descriptors that close themselves, and the few socket calls the library makes. Everything is
// CLOEXEC and non-blocking.
#ifndef SYMM_CORE_SOCKET_H_
#define SYMM_CORE_SOCKET_H_

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/deadline.h"

namespace symm {

class Fd {
 public:
  Fd() = default;
  // Takes the descriptor over, errno included where it is none. One of the numbers of standard
  // input, output and error, which a program that has these closed gets first, is moved above them:
  // whoever in the program still prints would write into symm's sockets and windows.
  explicit Fd(int fd) : fd_(fd > STDERR_FILENO || fd < 0 ? fd : above_standard_streams(fd)) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset();
  Fd duplicate() const;  // throws SYSTEM

 private:
  static int above_standard_streams(int fd);

  int fd_ = -1;
};

// One place to listen at or connect to.
struct Endpoint {
  // Exactly one of the two is used: an abstract unix name (without its leading NUL), or host and
  // port.
  std::string unix_name;
  std::string host;  // a number or name; IPv6 without brackets
  uint16_t port = 0;

  bool is_unix() const { return !unix_name.empty(); }
  std::string display() const;  // "10.0.0.1:29500", "[fe80::1]:29500", "unix:@symm-…"
  bool operator==(const Endpoint&) const = default;
};

// A listening socket. For TCP: SO_REUSEADDR; port 0 lets the kernel choose; host "" is every
// interface, IPv6 and IPv4. Throws Error SYSTEM with endpoint and errno; `in_use`, when not null,
// is set instead where the address is taken, and an empty Fd returned.
Fd listen_at(const Endpoint& endpoint, bool* in_use);
// The port a TCP listener or connection is bound to, and the local address of a connection as text.
Endpoint local_endpoint(int fd);

// TCP_NODELAY, keepalive (idle 10 s, 3 probes 5 s apart) and TCP_USER_TIMEOUT 30 s, so that a host
// that vanishes is noticed. connect_once() does it; connections accepted at a listener of
// listen_at() inherit it.
void tune_connection(int fd);

// A connection, tried once: waits at most until `deadline` (name look-up included), and tries every
// address of the host. Returns an empty Fd and sets *error (errno value) where it fails. Host names
// are resolved each time; failures of that are EHOSTUNREACH with *detail, and a unix listener of
// another user is EACCES with *detail. A unix listener whose backlog is full is ECONNREFUSED, as is
// a TCP port that answered with ourselves: try again later.
Fd connect_once(const Endpoint& endpoint, Deadline deadline, int* error, std::string* detail);

// The part of connect_once() that comes after the look-up: the first of the addresses that takes a
// TCP connection. The time left is shared out equally, so that one that swallows packets does not
// cost the others their turn. *error is the first address's.
struct SocketAddress;
Fd connect_any(const std::vector<SocketAddress>& addresses, Deadline deadline, int* error);

// Whether an attempt failed for want of a descriptor or memory here, whatever the place.
bool lacks_resources(int connect_error);

// Numbers of all this host's interfaces that are up, loopback last; IPv6 link-local ones left out.
std::vector<std::string> interface_addresses();

// Peer of a unix connection by SO_PEERCRED.
struct PeerCredentials {
  pid_t pid;
  uid_t uid;
};
PeerCredentials peer_credentials(int fd);

// Identity of this host for sharing memory: boot id and network name space, as 32 hex digits.
std::string host_identity();

// `bytes` random bytes as lower-case hex (2 * bytes characters), from getrandom().
std::string random_hex(size_t bytes);

}  // namespace symm

#endif  // SYMM_CORE_SOCKET_H_
