#include "core/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <set>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/resolver.h"

namespace symm {
namespace {

Endpoint tcp(const std::string& host, uint16_t port = 0) { return {"", host, port}; }

Endpoint unix_endpoint() { return {"symm-test-" + random_hex(8), "", 0}; }

Deadline soon() { return Deadline::after_ms(5000); }

Fd connect_to(const Endpoint& endpoint, int* error) {
  std::string detail;
  return connect_once(endpoint, soon(), error, &detail);
}

Fd accept_one(const Fd& listener) {
  pollfd ready = {listener.get(), POLLIN, 0};
  if (::poll(&ready, 1, 5000) != 1) return Fd();
  return Fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

int option(int fd, int level, int name) {
  int value = -1;
  socklen_t length = sizeof value;
  EXPECT_EQ(getsockopt(fd, level, name, &value, &length), 0);
  return value;
}

bool is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

bool has_ipv6() {
  try {
    return static_cast<bool>(listen_at(tcp("::1"), nullptr));
  } catch (const Error&) {
    return false;
  }
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), SYMM_SYSTEM);
    return error.what();
  }
  return "no error";
}

// Makes every byte of a connection pass once, so that it is known to be one.
void expect_connected(const Fd& a, const Fd& b) {
  ASSERT_TRUE(a && b);
  ASSERT_EQ(::send(a.get(), "x", 1, MSG_NOSIGNAL), 1);
  pollfd ready = {b.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&ready, 1, 5000), 1);
  char byte = 0;
  ASSERT_EQ(::recv(b.get(), &byte, 1, 0), 1);
  EXPECT_EQ(byte, 'x');
}

TEST(Fd, ClosesWhatItOwnsOnce) {
  int fd = -1;
  {
    Fd owner = listen_at(unix_endpoint(), nullptr);
    fd = owner.get();
    Fd moved = std::move(owner);
    EXPECT_FALSE(owner);
    EXPECT_TRUE(is_open(fd));
  }
  EXPECT_FALSE(is_open(fd));
  Fd released = listen_at(unix_endpoint(), nullptr);
  fd = released.release();
  EXPECT_FALSE(released);
  EXPECT_TRUE(is_open(fd));
  ::close(fd);
}

TEST(Fd, AssignmentClosesWhatWasThereBefore) {
  Fd first = listen_at(unix_endpoint(), nullptr);
  const int closed = first.get();
  first = listen_at(unix_endpoint(), nullptr);
  EXPECT_TRUE(is_open(first.get()));
  EXPECT_NE(first.get(), closed);
  EXPECT_FALSE(is_open(closed));
}

TEST(Fd, DuplicatesAreIndependentAndCloseOnExec) {
  Fd original = listen_at(unix_endpoint(), nullptr);
  const Fd copy = original.duplicate();
  original.reset();
  EXPECT_TRUE(is_open(copy.get()));
  EXPECT_NE(fcntl(copy.get(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_THROW((void)Fd().duplicate(), Error);
}

TEST(Endpoint, IsDisplayedAsItWouldBeWritten) {
  EXPECT_EQ(tcp("10.0.0.1", 29500).display(), "10.0.0.1:29500");
  EXPECT_EQ(tcp("fe80::1", 1).display(), "[fe80::1]:1");
  EXPECT_EQ(tcp("", 5).display(), "*:5");
  EXPECT_EQ((Endpoint{"symm-a", "", 0}).display(), "unix:@symm-a");
}

TEST(Sockets, AreNonBlockingAndCloseOnExec) {
  for (const Endpoint& endpoint : {tcp("127.0.0.1"), unix_endpoint()}) {
    const Fd listener = listen_at(endpoint, nullptr);
    int error = 0;
    const Fd client =
        connect_to(endpoint.is_unix() ? endpoint : local_endpoint(listener.get()), &error);
    ASSERT_TRUE(client) << errno_text(error);
    for (const int fd : {listener.get(), client.get()}) {
      EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
      EXPECT_NE(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
    }
  }
}

TEST(Sockets, TcpConnectsOverIpv4AndByName) {
  for (const char* host : {"127.0.0.1", "localhost"}) {
    const Fd listener = listen_at(tcp(host), nullptr);
    const uint16_t port = local_endpoint(listener.get()).port;
    ASSERT_NE(port, 0);
    int error = 0;
    const Fd client = connect_to(tcp(host, port), &error);
    EXPECT_EQ(error, 0);
    expect_connected(client, accept_one(listener));
  }
}

TEST(Sockets, EveryInterfaceMeansBothFamilies) {
  const Fd listener = listen_at(tcp(""), nullptr);
  const uint16_t port = local_endpoint(listener.get()).port;
  std::vector<std::string> hosts = {"127.0.0.1"};
  if (has_ipv6()) hosts.push_back("::1");
  for (const std::string& host : hosts) {
    int error = 0;
    const Fd client = connect_to(tcp(host, port), &error);
    ASSERT_TRUE(client) << host << ": " << errno_text(error);
    const Fd server = accept_one(listener);
    expect_connected(client, server);
    // IPv4 on the IPv6 socket reads as IPv4.
    EXPECT_EQ(local_endpoint(server.get()), tcp(host, port));
  }
}

TEST(Sockets, UnixNamesAreAbstractAndComeBack) {
  const Endpoint endpoint = unix_endpoint();
  const Fd listener = listen_at(endpoint, nullptr);
  EXPECT_EQ(local_endpoint(listener.get()), endpoint);
  EXPECT_NE(access(endpoint.unix_name.c_str(), F_OK), 0);
  int error = 0;
  errno = EINPROGRESS;  // of some call before: no failure of this one
  const Fd client = connect_to(endpoint, &error);
  EXPECT_EQ(error, 0);
  const Fd server = accept_one(listener);
  expect_connected(client, server);
  EXPECT_EQ(peer_credentials(client.get()).pid, getpid());
  EXPECT_EQ(peer_credentials(server.get()).uid, geteuid());
}

TEST(Sockets, TheLongestUnixNameWorksAndOneMoreIsAnError) {
  Endpoint endpoint = unix_endpoint();
  endpoint.unix_name.resize(107, 'x');
  const Fd listener = listen_at(endpoint, nullptr);
  int error = 0;
  EXPECT_TRUE(connect_to(endpoint, &error));
  endpoint.unix_name += 'x';
  EXPECT_FALSE(connect_to(endpoint, &error));
  EXPECT_EQ(error, ENAMETOOLONG);
  EXPECT_NE(message_of([&] { listen_at(endpoint, nullptr); }).find(endpoint.display()),
            std::string::npos);
}

TEST(Sockets, BothEndsOfATcpConnectionNoticeAHostThatVanishes) {
  const Fd listener = listen_at(tcp("127.0.0.1"), nullptr);
  int error = 0;
  const Fd client = connect_to(local_endpoint(listener.get()), &error);
  const Fd server = accept_one(listener);
  for (const Fd* fd : {&client, &server}) {
    EXPECT_EQ(option(fd->get(), IPPROTO_TCP, TCP_NODELAY), 1);
    EXPECT_EQ(option(fd->get(), SOL_SOCKET, SO_KEEPALIVE), 1);
    EXPECT_EQ(option(fd->get(), IPPROTO_TCP, TCP_KEEPIDLE), 10);
    EXPECT_EQ(option(fd->get(), IPPROTO_TCP, TCP_KEEPINTVL), 5);
    EXPECT_EQ(option(fd->get(), IPPROTO_TCP, TCP_KEEPCNT), 3);
    EXPECT_EQ(option(fd->get(), IPPROTO_TCP, TCP_USER_TIMEOUT), 30000);
  }
}

TEST(Listen, AnAddressInUseIsSaidInWhicheverWayItWasAskedFor) {
  for (const Endpoint& wanted : {tcp("127.0.0.1"), tcp(""), unix_endpoint()}) {
    const Fd first = listen_at(wanted, nullptr);
    const Endpoint taken =
        wanted.is_unix() ? wanted : tcp(wanted.host, local_endpoint(first.get()).port);
    bool in_use = false;
    EXPECT_FALSE(listen_at(taken, &in_use));
    EXPECT_TRUE(in_use);
    const std::string message = message_of([&] { listen_at(taken, nullptr); });
    EXPECT_NE(message.find(taken.display()), std::string::npos) << message;
    EXPECT_NE(message.find(errno_text(EADDRINUSE)), std::string::npos) << message;
  }
}

TEST(Listen, APortTakenOnLoopbackIsTakenForEveryInterface) {
  const Fd first = listen_at(tcp("127.0.0.1"), nullptr);
  bool in_use = false;
  EXPECT_FALSE(listen_at(tcp("", local_endpoint(first.get()).port), &in_use));
  EXPECT_TRUE(in_use);
}

TEST(Listen, OtherFailuresAreNotTakenForInUse) {
  bool in_use = true;
  // Of the range for documentation: no host has it.
  EXPECT_NE(
      message_of([&] { listen_at(tcp("198.51.100.77", 1), &in_use); }).find("198.51.100.77:1"),
      std::string::npos);
  EXPECT_FALSE(in_use);
}

TEST(Listen, APortIsFreeAgainOnceItsConnectionsAreClosed) {
  uint16_t port = 0;
  {
    const Fd listener = listen_at(tcp("127.0.0.1"), nullptr);
    port = local_endpoint(listener.get()).port;
    int error = 0;
    Fd client = connect_to(tcp("127.0.0.1", port), &error);
    // The server closes first, so that its side is left in TIME_WAIT.
    accept_one(listener).reset();
  }
  bool in_use = false;
  EXPECT_TRUE(listen_at(tcp("127.0.0.1", port), &in_use));
}

TEST(Connect, NobodyThereIsRefusedAtOnce) {
  uint16_t port = local_endpoint(listen_at(tcp("127.0.0.1"), nullptr).get()).port;
  for (const Endpoint& endpoint : {tcp("127.0.0.1", port), unix_endpoint()}) {
    int error = 0;
    EXPECT_FALSE(connect_to(endpoint, &error));
    EXPECT_EQ(error, ECONNREFUSED);
  }
}

// A free port of the range that source ports are taken from, and of its first's parity: connect()
// takes those first, one after the other.
uint16_t free_ephemeral_port() {
  unsigned first = 32768, last = 60999;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first >> last;
  for (unsigned port = first; port <= last; port += 2) {
    bool in_use = false;
    if (listen_at(tcp("127.0.0.1", static_cast<uint16_t>(port)), &in_use)) {
      return static_cast<uint16_t>(port);
    }
  }
  return 0;
}

TEST(Connect, AFreePortIsNeverConnectedToItself) {
  const uint16_t port = free_ephemeral_port();
  ASSERT_NE(port, 0);
  // More tries than the range has ports of one parity: the port itself has its turn as source port.
  for (int i = 0; i < 20000; ++i) {
    int error = 0;
    ASSERT_FALSE(connect_to(tcp("127.0.0.1", port), &error)) << "try " << i;
    ASSERT_EQ(error, ECONNREFUSED) << "try " << i;
  }
}

TEST(Connect, AFullUnixBacklogIsRefusedAndNotAnErrorOfItsOwn) {
  const Endpoint endpoint = unix_endpoint();
  const Fd listener = listen_at(endpoint, nullptr);
  ASSERT_EQ(::listen(listener.get(), 0), 0);
  std::vector<Fd> waiting;
  int error = 0;
  for (int i = 0; i < 10 && error == 0; ++i) waiting.push_back(connect_to(endpoint, &error));
  EXPECT_EQ(error, ECONNREFUSED);
  // Room again: the same call works.
  EXPECT_TRUE(accept_one(listener));
  EXPECT_TRUE(connect_to(endpoint, &error));
}

// A TCP listener that takes no more connections: the kernel drops the SYN, as a host that is down
// does.
class SilentHost {
 public:
  SilentHost() : listener_(listen_at(tcp("127.0.0.1"), nullptr)) {
    EXPECT_EQ(::listen(listener_.get(), 0), 0);
    endpoint_ = local_endpoint(listener_.get());
    for (int i = 0; i < 4; ++i) {
      int error = 0;
      std::string detail;
      waiting_.push_back(connect_once(endpoint_, Deadline::after_ms(50), &error, &detail));
    }
  }
  const Endpoint& endpoint() const { return endpoint_; }

 private:
  Fd listener_;
  Endpoint endpoint_;
  std::vector<Fd> waiting_;
};

TEST(Connect, ASilentHostCostsNoMoreThanTheDeadline) {
  const SilentHost host;
  int error = 0;
  std::string detail;
  const auto start = Clock::now();
  EXPECT_FALSE(connect_once(host.endpoint(), Deadline::after_ms(200), &error, &detail));
  const auto took = Clock::now() - start;
  EXPECT_EQ(error, ETIMEDOUT);
  EXPECT_GE(took, std::chrono::milliseconds(190));
  EXPECT_LT(took, std::chrono::milliseconds(3000));
}

std::vector<SocketAddress> addresses_of(const std::vector<Endpoint>& endpoints) {
  std::vector<SocketAddress> addresses;
  for (const Endpoint& endpoint : endpoints) {
    const Resolution one = resolve(endpoint.host, endpoint.port, soon());
    addresses.insert(addresses.end(), one.addresses.begin(), one.addresses.end());
  }
  return addresses;
}

TEST(Connect, EveryAddressOfAHostHasItsTurn) {
  const SilentHost silent;
  const Endpoint refusing = local_endpoint(listen_at(tcp("127.0.0.1"), nullptr).get());
  const Fd listener = listen_at(tcp("127.0.0.1"), nullptr);
  const Endpoint live = local_endpoint(listener.get());
  int error = -1;
  const Fd client = connect_any(addresses_of({refusing, silent.endpoint(), live}),
                                Deadline::after_ms(1000), &error);
  EXPECT_EQ(error, 0);
  expect_connected(client, accept_one(listener));
  EXPECT_FALSE(
      connect_any(addresses_of({refusing, silent.endpoint()}), Deadline::after_ms(100), &error));
  EXPECT_EQ(error, ECONNREFUSED);
}

void ignore_signal(int) {}

TEST(Connect, SignalsNeitherEndNorProlongTheWait) {
  const SilentHost host;
  struct sigaction action = {}, before = {};
  action.sa_handler = ignore_signal;  // without SA_RESTART: every wait ends with EINTR
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  std::atomic<bool> stop{false};
  std::thread pest([&stop, target = pthread_self()] {
    while (!stop) {
      pthread_kill(target, SIGUSR1);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  int error = 0;
  std::string detail;
  const auto start = Clock::now();
  EXPECT_FALSE(connect_once(host.endpoint(), Deadline::after_ms(300), &error, &detail));
  const auto took = Clock::now() - start;
  stop = true;
  pest.join();
  sigaction(SIGUSR1, &before, nullptr);
  EXPECT_EQ(error, ETIMEDOUT);
  EXPECT_GE(took, std::chrono::milliseconds(290));
  EXPECT_LT(took, std::chrono::milliseconds(3000));
}

TEST(Connect, APassedDeadlineStillReachesWhoIsThere) {
  const Endpoint endpoint = unix_endpoint();
  const Fd listener = listen_at(endpoint, nullptr);
  int error = 0;
  std::string detail;
  EXPECT_TRUE(connect_once(endpoint, Deadline::after_ms(-1), &error, &detail));
}

TEST(Connect, AnUnknownHostIsNamed) {
  int error = 0;
  std::string detail;
  EXPECT_FALSE(connect_once(tcp("no-such-host.invalid", 1), soon(), &error, &detail));
  EXPECT_EQ(error, EHOSTUNREACH);
  EXPECT_NE(detail.find("no-such-host.invalid"), std::string::npos) << detail;
}

TEST(Resolve, NumbersComeBackAsTheyAre) {
  const Resolution four = resolve("127.0.0.1", 7, soon());
  ASSERT_EQ(four.addresses.size(), 1u);
  EXPECT_EQ(four.addresses[0].family(), AF_INET);
  const Resolution six = resolve("::1", 7, soon());
  ASSERT_EQ(six.addresses.size(), 1u);
  EXPECT_EQ(six.addresses[0].family(), AF_INET6);
}

TEST(Resolve, ANameIsGivenUpAtTheDeadline) {
  // The deadline has passed: whatever the resolver does, nobody waits for it.
  const auto start = Clock::now();
  const Resolution resolution = resolve("no-such-host.invalid", 7, Deadline::after_ms(-1));
  EXPECT_NE(resolution.error, 0);
  EXPECT_NE(resolution.detail.find("no-such-host.invalid"), std::string::npos);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(2));
}

TEST(Resolve, ManyThreadsMayAskForOneNameAtOnce) {
  std::vector<std::thread> threads;
  std::atomic<int> found{0};
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([&found] {
      for (int round = 0; round < 20; ++round) {
        const Resolution resolution = resolve("localhost", 7, soon());
        if (resolution.error == 0 && !resolution.addresses.empty()) ++found;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(found, 16 * 20);
}

TEST(InterfaceAddresses, AreNumbersWithLoopbackLastAndNoLinkLocalOnes) {
  const std::vector<std::string> hosts = interface_addresses();
  ASSERT_NE(std::find(hosts.begin(), hosts.end(), "127.0.0.1"), hosts.end());
  EXPECT_EQ(std::set<std::string>(hosts.begin(), hosts.end()).size(), hosts.size());
  bool loopback = false;
  for (const std::string& host : hosts) {
    EXPECT_EQ(resolve(host, 1, Deadline::after_ms(-1)).error, 0) << host;
    EXPECT_FALSE(host.starts_with("fe80")) << host;
    const bool is_loopback = host.starts_with("127.") || host == "::1";
    EXPECT_TRUE(is_loopback || !loopback) << host << " after a loopback address";
    loopback = loopback || is_loopback;
  }
}

TEST(HostIdentity, IsTheSameEveryTimeAndInAnotherProcess) {
  const std::string id = host_identity();
  EXPECT_EQ(id.size(), 32u);
  EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(host_identity(), id);
  int pipe_ends[2];
  ASSERT_EQ(pipe2(pipe_ends, O_CLOEXEC), 0);
  const Fd read_end(pipe_ends[0]);
  Fd write_end(pipe_ends[1]);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const std::string own = host_identity();
    (void)!::write(write_end.get(), own.data(), own.size());
    _exit(0);
  }
  write_end.reset();
  char other[64] = {};
  EXPECT_EQ(::read(read_end.get(), other, sizeof other), 32);
  EXPECT_EQ(std::string(other), id);
}

TEST(RandomHex, IsOfTheLengthAskedForAndNeverTheSame) {
  EXPECT_EQ(random_hex(0), "");
  EXPECT_EQ(random_hex(1000).size(), 2000u);
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(random_hex(16));
  EXPECT_EQ(seen.size(), 1000u);
}

}  // namespace
}  // namespace symm
