#include "core/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <tuple>

#include "core/digest.h"
#include "core/error.h"
#include "core/resolver.h"

namespace symm {
namespace {

constexpr int kBacklog = 4096;  // the kernel cuts it to net.core.somaxconn
// How long listen_at() may look for the address of a name. Its own host's name is in a file.
constexpr int64_t kListenResolveMs = 30000;

Error system_error(const std::string& what, int error) {
  return Error(SYMM_SYSTEM, text(what, ": ", errno_text(error)));
}

void set_option(int fd, int level, int name, int value) {
  // Options only better a connection; a kernel without one of them still connects.
  (void)setsockopt(fd, level, name, &value, sizeof value);
}

Fd open_socket(int family) {
  return Fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// The abstract name space: a NUL, then the name, with no NUL at the end. False: too long.
bool unix_address(const std::string& name, SocketAddress* address) {
  sockaddr_un unix_address = {};
  unix_address.sun_family = AF_UNIX;
  if (name.size() > sizeof unix_address.sun_path - 1) return false;
  std::memcpy(unix_address.sun_path + 1, name.data(), name.size());
  std::memcpy(&address->storage, &unix_address, sizeof unix_address);
  address->length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return true;
}

// 0, or the errno value of the step that failed.
int listen_on(const Fd& fd, const SocketAddress& address) {
  if (!fd) return errno;
  if (address.family() != AF_UNIX) {
    set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    tune_connection(fd.get());  // what it accepts inherits the options
  }
  if (::bind(fd.get(), address.get(), address.length) != 0) return errno;
  // Two binders with SO_REUSEADDR can both get past bind; the second listen then fails.
  if (::listen(fd.get(), kBacklog) != 0) return errno;
  return 0;
}

Fd listen_everywhere(uint16_t port, int* error) {
  SocketAddress address;
  sockaddr_in6 six = {};
  six.sin6_family = AF_INET6;
  six.sin6_addr = in6addr_any;
  six.sin6_port = htons(port);
  std::memcpy(&address.storage, &six, sizeof six);
  address.length = sizeof six;
  Fd fd = open_socket(AF_INET6);
  const int off = 0;
  // setsockopt first: without IPv4 on this socket the IPv4 one below is the better one.
  if (fd && setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) == 0) {
    *error = listen_on(fd, address);
    // IPv6 compiled in but turned off says EADDRNOTAVAIL; anything else is about the port.
    if (*error == 0) return fd;
    if (*error != EADDRNOTAVAIL && *error != EAFNOSUPPORT) return Fd();
  }
  address = SocketAddress();
  sockaddr_in four = {};
  four.sin_family = AF_INET;
  four.sin_addr.s_addr = htonl(INADDR_ANY);
  four.sin_port = htons(port);
  std::memcpy(&address.storage, &four, sizeof four);
  address.length = sizeof four;
  fd = open_socket(AF_INET);
  *error = listen_on(fd, address);
  return *error == 0 ? std::move(fd) : Fd();
}

// Listens at the first of the host's addresses that works. One that is taken ends the search:
// another rank 0 may listen there, and two ranks 0 at 127.0.0.1 and ::1 would never meet.
Fd listen_at_host(const Endpoint& endpoint, int* error) {
  const Resolution resolution =
      resolve(endpoint.host, endpoint.port, Deadline::after_ms(kListenResolveMs));
  if (resolution.error != 0) {
    throw Error(SYMM_SYSTEM,
                text("cannot listen at ", endpoint.display(), ": ", resolution.detail));
  }
  for (const SocketAddress& address : resolution.addresses) {
    Fd fd = open_socket(address.family());
    *error = listen_on(fd, address);
    if (*error == 0) return fd;
    if (*error == EADDRINUSE) break;
  }
  return Fd();
}

// 0 once connected. A signal neither ends nor prolongs the wait.
int wait_connected(int fd, Deadline deadline) {
  for (;;) {
    pollfd poll_fd = {fd, POLLOUT, 0};
    const int ready = ::poll(&poll_fd, 1, deadline.left_ms());
    if (ready > 0) break;
    if (ready < 0 && errno != EINTR) return errno;
    if (deadline.passed()) return ETIMEDOUT;
  }
  int error = 0;
  socklen_t length = sizeof error;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno;
  return error;
}

// A port in the ephemeral range that nobody listens at can be connected to itself: the kernel may
// choose it as the source port as well.
bool connected_to_itself(int fd) {
  SocketAddress local, peer;
  local.length = peer.length = sizeof local.storage;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&local.storage), &local.length) != 0)
    return false;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer.storage), &peer.length) != 0) return false;
  return local.length == peer.length &&
         std::memcmp(&local.storage, &peer.storage, local.length) == 0;
}

Fd connect_unix(const Endpoint& endpoint, int* error, std::string* detail) {
  SocketAddress address;
  if (!unix_address(endpoint.unix_name, &address)) {
    *error = ENAMETOOLONG;
    return Fd();
  }
  Fd fd = open_socket(AF_UNIX);
  if (!fd) {
    *error = errno;
    return fd;
  }
  int result = 0;
  do {
    result = ::connect(fd.get(), address.get(), address.length);
  } while (result != 0 && errno == EINTR);
  if (result == 0) {
    // Abstract names have no permissions: another user may have been there first.
    const uid_t owner = peer_credentials(fd.get()).uid;
    if (owner == geteuid()) return fd;
    *error = EACCES;
    *detail = text("its process is of user ", owner, ", this one of user ", geteuid(),
                   "; run every rank as the same user");
    return Fd();
  }
  // EAGAIN: the listener's backlog is full. As for TCP that is "nobody takes it now, try again".
  *error = errno == EAGAIN ? ECONNREFUSED : errno;
  return Fd();
}

Fd connect_tcp(const SocketAddress& address, Deadline deadline, int* error) {
  Fd fd = open_socket(address.family());
  if (!fd) {
    *error = errno;
    return fd;
  }
  tune_connection(fd.get());
  if (::connect(fd.get(), address.get(), address.length) != 0) {
    // After EINTR the connection goes on being made, as after EINPROGRESS.
    *error = errno == EINPROGRESS || errno == EINTR ? wait_connected(fd.get(), deadline) : errno;
    if (*error != 0) return Fd();
  }
  if (connected_to_itself(fd.get())) {
    *error = ECONNREFUSED;
    return Fd();
  }
  return fd;
}

std::string numeric_host(const sockaddr* address, socklen_t length) {
  if (address->sa_family == AF_INET6) {
    sockaddr_in6 six;
    std::memcpy(&six, address, sizeof six);
    if (IN6_IS_ADDR_V4MAPPED(&six.sin6_addr)) {  // IPv4 on a dual-stack socket
      char buffer[INET_ADDRSTRLEN] = {};
      inet_ntop(AF_INET, &six.sin6_addr.s6_addr[12], buffer, sizeof buffer);
      return buffer;
    }
  }
  char buffer[NI_MAXHOST] = {};
  if (getnameinfo(address, length, buffer, sizeof buffer, nullptr, 0, NI_NUMERICHOST) != 0) {
    return "";
  }
  return buffer;
}

}  // namespace

int Fd::above_standard_streams(int fd) {
  const int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  ::close(fd);
  errno = error;
  return moved;
}

void Fd::reset() {
  // Not retried after EINTR: Linux has closed it by then.
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

Fd Fd::duplicate() const {
  const int copy = ::fcntl(fd_, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) throw system_error(text("cannot duplicate file descriptor ", fd_), errno);
  return Fd(copy);
}

std::string Endpoint::display() const {
  if (is_unix()) return "unix:@" + unix_name;
  const bool six = host.find(':') != std::string::npos;
  return (six ? '[' + host + ']' : host.empty() ? "*" : host) + ':' + std::to_string(port);
}

void tune_connection(int fd) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 30000);
}

Fd listen_at(const Endpoint& endpoint, bool* in_use) {
  if (in_use != nullptr) *in_use = false;
  int error = 0;
  Fd fd;
  if (endpoint.is_unix()) {
    SocketAddress address;
    if (unix_address(endpoint.unix_name, &address)) {
      fd = open_socket(AF_UNIX);
      error = listen_on(fd, address);
    } else {
      error = ENAMETOOLONG;
    }
  } else if (endpoint.host.empty()) {
    fd = listen_everywhere(endpoint.port, &error);
  } else {
    fd = listen_at_host(endpoint, &error);
  }
  if (error == 0) return fd;
  if (error == EADDRINUSE && in_use != nullptr) {
    *in_use = true;
    return Fd();
  }
  throw system_error(text("cannot listen at ", endpoint.display()), error);
}

Endpoint local_endpoint(int fd) {
  SocketAddress address;
  address.length = sizeof address.storage;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) {
    throw system_error("cannot read the local address of a socket", errno);
  }
  Endpoint endpoint;
  if (address.family() == AF_UNIX) {
    const auto* name = reinterpret_cast<const sockaddr_un*>(&address.storage)->sun_path;
    constexpr size_t kBefore = offsetof(sockaddr_un, sun_path) + 1;
    if (address.length > kBefore) endpoint.unix_name.assign(name + 1, address.length - kBefore);
    return endpoint;
  }
  endpoint.host = numeric_host(address.get(), address.length);
  endpoint.port = ntohs(address.family() == AF_INET
                            ? reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_port
                            : reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_port);
  return endpoint;
}

Fd connect_once(const Endpoint& endpoint, Deadline deadline, int* error, std::string* detail) {
  *error = 0;
  detail->clear();
  if (endpoint.is_unix()) return connect_unix(endpoint, error, detail);
  const Resolution resolution = resolve(endpoint.host, endpoint.port, deadline);
  if (resolution.error != 0) {
    *error = EHOSTUNREACH;
    *detail = resolution.detail;
    return Fd();
  }
  return connect_any(resolution.addresses, deadline, error);
}

bool lacks_resources(int connect_error) {
  return connect_error == EMFILE || connect_error == ENFILE || connect_error == ENOMEM ||
         connect_error == ENOBUFS;
}

Fd connect_any(const std::vector<SocketAddress>& addresses, Deadline deadline, int* error) {
  size_t left = addresses.size();
  int first_error = 0;
  for (const SocketAddress& address : addresses) {
    Fd fd = connect_tcp(address, deadline.share(left--), error);
    if (fd) {
      *error = 0;  // an earlier address may have failed
      return fd;
    }
    // The first address is the one the resolver holds for best: its failure is the one to tell.
    if (first_error == 0) first_error = *error;
  }
  *error = first_error;
  return Fd();
}

std::vector<std::string> interface_addresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) throw system_error("cannot list network interfaces", errno);
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  // Sorted by how likely another host reaches it: a bridge without members is up but not running.
  std::vector<std::pair<std::tuple<bool, bool, bool>, std::string>> found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    if (family == AF_INET6) {
      sockaddr_in6 six;
      std::memcpy(&six, entry->ifa_addr, sizeof six);
      if (IN6_IS_ADDR_LINKLOCAL(&six.sin6_addr)) continue;
    }
    const std::string host = numeric_host(
        entry->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    if (host.empty()) continue;
    found.push_back({{(entry->ifa_flags & IFF_LOOPBACK) != 0, (entry->ifa_flags & IFF_RUNNING) == 0,
                      family == AF_INET6},
                     host});
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> hosts;
  for (auto& [order, host] : found) {
    if (std::find(hosts.begin(), hosts.end(), host) == hosts.end()) hosts.push_back(host);
  }
  return hosts;
}

PeerCredentials peer_credentials(int fd) {
  ucred credentials = {};
  socklen_t length = sizeof credentials;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
    throw system_error("cannot read the credentials of a peer", errno);
  }
  return {credentials.pid, credentials.uid};
}

std::string host_identity() {
  std::string boot;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  if (!file && (errno == EMFILE || errno == ENFILE)) {
    // Not taken for a missing /proc: this rank would seem to be on a host of its own.
    throw system_error("cannot read this host's identity", errno);
  }
  std::getline(file, boot);
  struct stat network = {};
  if (boot.empty() || ::stat("/proc/self/ns/net", &network) != 0) {
    // Without /proc nothing says that two processes share a host: each is then a host of its own.
    static const std::string own = random_hex(16);
    return own;
  }
  // Not text(), whose numbers follow the process's locale: every process must write the same.
  return digest_hex(boot + '/' + std::to_string(network.st_dev) + ':' +
                    std::to_string(network.st_ino));
}

std::string random_hex(size_t bytes) {
  std::string random(bytes, '\0');
  size_t filled = 0;
  while (filled < bytes) {
    const ssize_t got = ::getrandom(random.data() + filled, bytes - filled, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw system_error("cannot get random bytes", errno);
    filled += static_cast<size_t>(got);
  }
  return hex(random);
}

}  // namespace symm
