#include "core/rendezvous.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "core/address_file.h"
#include "core/attempt.h"
#include "core/digest.h"
#include "core/meeting.h"
#include "core/process.h"

namespace symm {
namespace {

// Between attempts to reach a server that is not there yet.
constexpr auto kFirstPause = std::chrono::milliseconds(2);
constexpr auto kLongestPause = std::chrono::milliseconds(50);
// A server answers a HELLO in microseconds; what listens and does not is something else.
constexpr int kAnswerMs = 5000;
// How long a rank that cannot go on looks for the server, to tell those who are there.
constexpr int kTellMs = 2000;
// How long rank 0 stays with a meeting that has failed.
constexpr int kTellLatecomersMs = 3000;
// How long after its own deadline a rank waits for the server's word on who is missing.
constexpr auto kGrace = std::chrono::milliseconds(700);
// How long a rank that gives up waits for the server to have read why.
constexpr auto kAbandonTime = std::chrono::milliseconds(200);

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

// One conversation with a server, from HELLO to its outcome.
class Visit : public Attendance {
 public:
  Visit(Fd fd, const Hello& hello) : reactor_(Reactor::acquire()) {
    const auto shared_fd = std::make_shared<Fd>(std::move(fd));
    reactor_->run_and_wait([&] {
      connection_ =
          std::make_shared<Connection>(*reactor_, std::move(*shared_fd), kMostWelcomePayload);
      connection_->start([shared = shared_](const Frame& f) { on_frame(*shared, f); },
                         [shared = shared_](const std::string& reason) {
                           std::lock_guard lock(shared->mutex);
                           shared->closed = reason;
                           shared->changed.notify_all();
                         });
      connection_->send(kHello, encode(hello));
    });
  }
  ~Visit() override {
    reactor_->run_and_wait([this] { connection_->close(); });
  }

  void on_lost(std::function<void(const Failure&)> callback) override {
    std::optional<Failure> lost;
    {
      std::lock_guard lock(shared_->mutex);
      shared_->on_lost = callback;
      lost = shared_->refused;
    }
    if (lost) callback(*lost);
  }

  std::optional<Failure> loss(Deadline deadline) override {
    std::unique_lock lock(shared_->mutex);
    shared_->changed.wait_until(lock, deadline.when(),
                                [&] { return shared_->refused || shared_->closed; });
    return shared_->refused;
  }

  void settled() override {
    reactor_->run_and_wait([this] {
      connection_->send(kGoodbye, {});
      connection_->close_after_flush(std::chrono::seconds(2));
    });
  }

  void abandon(const Failure& reason) override {
    reactor_->run_and_wait([&] { connection_->send(kFault, encode(reason)); });
    // The server ends the connection when it has told the others. It may be in this very process,
    // which may be about to exit.
    std::unique_lock lock(shared_->mutex);
    shared_->changed.wait_for(lock, kAbandonTime, [&] { return shared_->closed.has_value(); });
  }

  // True once the server has taken the HELLO for one of its own; false with *problem where it is
  // something else or went away before.
  bool received(Deadline deadline, std::string* problem) {
    std::unique_lock lock(shared_->mutex);
    shared_->changed.wait_until(lock, deadline.when(), [&] {
      return shared_->received || shared_->refused || shared_->closed;
    });
    if (shared_->received || shared_->refused) return true;
    *problem = shared_->closed ? text("it closed the connection (", *shared_->closed, ")")
                               : "it accepts connections and does not answer as symm does";
    return false;
  }

  bool refused_as_another_job() const {
    std::lock_guard lock(shared_->mutex);
    return shared_->refused && shared_->refused->message == kAnotherJob;
  }

  // `server` says who that is in messages; `server_rank` is its rank or kNoRank.
  Welcome outcome(Deadline deadline, const std::string& server, int server_rank) {
    std::unique_lock lock(shared_->mutex);
    // A loss after WELCOME is told by on_lost().
    const auto ended = [&] { return shared_->welcome || shared_->refused || shared_->closed; };
    if (!shared_->changed.wait_until(lock, deadline.when(), ended)) {
      lock.unlock();
      reactor_->post([connection = connection_] { connection->send(kExpired, encode(Expired{})); });
      lock.lock();
      shared_->changed.wait_for(lock, kGrace, ended);
    }
    if (shared_->welcome) return std::move(*shared_->welcome);
    if (shared_->refused) {
      throw Error(shared_->refused->status, shared_->refused->message, shared_->refused->rank);
    }
    if (shared_->closed) {
      throw Error(
          SYMM_PEER,
          text(server, " died or gave up while the ranks were meeting (", *shared_->closed, ")"),
          server_rank);
    }
    throw Error(SYMM_TIMEOUT, text(server, " does not answer"), server_rank);
  }

 private:
  struct Shared {
    mutable std::mutex mutex;
    std::condition_variable changed;
    bool received = false;
    std::optional<Welcome> welcome;
    std::optional<Failure> refused;
    std::optional<std::string> closed;
    std::function<void(const Failure&)> on_lost;
  };

  static void on_frame(Shared& shared, const Frame& frame) {
    std::function<void(const Failure&)> on_lost;
    std::unique_lock lock(shared.mutex);
    if (frame.type == kReceived) {
      shared.received = true;
    } else if (frame.type == kWelcome) {
      shared.welcome = decode_welcome(frame.payload);
    } else if (frame.type == kRefused) {
      if (shared.refused) return;
      shared.refused = decode_failure(frame.payload);
      on_lost = shared.on_lost;
    } else {
      throw WireError(text("a frame of type ", frame.type));
    }
    shared.changed.notify_all();
    const auto refused = shared.refused;
    lock.unlock();
    if (on_lost) on_lost(*refused);
  }

  std::shared_ptr<Reactor> reactor_;
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::shared_ptr<Connection> connection_;
};

// Finds the server, again and again until the deadline: it may start later than this rank.
class Search {
 public:
  // `serve` is called before every attempt; for rank 0 it takes over an address that has become
  // free.
  Search(const Address& address, const std::string& address_text, const std::string& file_path,
         Deadline deadline, std::function<bool()> serve)
      : address_(address),
        address_text_(address_text),
        file_path_(file_path),
        deadline_(deadline),
        serve_(std::move(serve)) {}

  std::unique_ptr<Visit> run(Hello hello) {
    auto pause = std::chrono::duration_cast<Clock::duration>(kFirstPause);
    for (;;) {
      in_use_ = serve_();
      for (const auto& [endpoint, token] : candidates()) {
        hello.token = token;
        if (auto visit = attempt(endpoint, hello)) return visit;
        if (deadline_.passed()) break;
      }
      if (deadline_.passed()) give_up(hello);
      std::this_thread::sleep_until(std::min(Clock::now() + pause, deadline_.when()));
      pause = std::min<Clock::duration>(pause * 2, kLongestPause);
    }
  }

 private:
  using Candidates = std::vector<std::pair<Endpoint, std::string>>;

  Candidates candidates() {
    Address served = address_;
    if (address_.kind == Address::Kind::kFile) {
      const auto written = read_address_file(file_path_, &problem_);
      if (!written) return {};
      served = *written;
    }
    Candidates list;
    const bool same_host = served.host_id == host_identity();
    for (const Endpoint& endpoint : served.endpoints) {
      // A served address's unix socket means something on its own host only.
      if (endpoint.is_unix() && !served.host_id.empty() && !same_host) continue;
      list.emplace_back(endpoint, served.token);
    }
    return list;
  }

  std::unique_ptr<Visit> attempt(const Endpoint& endpoint, const Hello& hello) {
    const Deadline soon = Deadline::after_ms(kAnswerMs).sooner(deadline_);
    int error = 0;
    std::string detail;
    Fd fd = connect_once(endpoint, soon, &error, &detail);
    if (!fd) {
      problem_ = text(endpoint.display(), ": ", detail.empty() ? errno_text(error) : detail);
      if (lacks_resources(error)) {
        throw Error(SYMM_SYSTEM, text("cannot connect to ", problem_));
      }
      return nullptr;
    }
    auto visit = std::make_unique<Visit>(std::move(fd), hello);
    std::string problem;
    if (!visit->received(soon, &problem)) {
      problem_ = text(endpoint.display(), ": ", problem);
      return nullptr;
    }
    if (visit->refused_as_another_job()) {
      problem_ = text(endpoint.display(), ": ", kAnotherJob);
      // A file of a dead job may name a port that a live one uses now; the right one is yet to
      // come.
      if (address_.kind == Address::Kind::kFile) return nullptr;
      throw Error(SYMM_INVALID_ARGUMENT,
                  text("address \"", address_text_, "\": ", kAnotherJob,
                       "; use another port, or set SYMM_TOKEN to the same value on every rank"));
    }
    return visit;
  }

  [[noreturn]] void give_up(const Hello& hello) {
    const char* remedy = "; is that process alive, and reachable from this host?";
    if (address_.kind != Address::Kind::kServed) {
      remedy = "; is rank 0 started, with the same address, and reachable from this host?";
    }
    if (address_text_ == "env://")
      remedy = "; is rank 0 started, and are MASTER_ADDR and MASTER_PORT right?";
    if (in_use_) {
      remedy =
          "; the port is in use by another program on this host: choose another, or stop that one";
    }
    throw Error(SYMM_TIMEOUT,
                text("no process served address \"", address_text_, "\" within the ",
                     hello.options.timeout_ms, " ms of options.timeout_ms (last attempt: ",
                     problem_.empty() ? "none" : problem_, ")", remedy),
                address_.kind == Address::Kind::kServed ? kNoRank : 0);
  }

  const Address& address_;
  const std::string& address_text_;
  const std::string& file_path_;
  const Deadline deadline_;
  const std::function<bool()> serve_;
  bool in_use_ = false;
  std::string problem_;
};

// Returns once every rank of a failed meeting has come and has been told, or soon.
void wait_until_told(const std::string& token, const std::string& name, Deadline deadline) {
  const auto reactor = Reactor::acquire();
  const Deadline soon = Deadline::after_ms(kTellLatecomersMs).sooner(deadline);
  bool untold = true;
  while (untold && !soon.passed()) {
    reactor->run_and_wait([&] { untold = Meetings::of(*reactor).has_untold(token, name); });
    if (untold) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

// Rank 0's duty to serve. What it opened, and where a client (rank 0 itself too) finds it.
struct Served {
  std::vector<std::shared_ptr<Listener>> listeners;
  Address address;
  std::vector<std::string> hosts;  // for the star, as others see them
  std::shared_ptr<AddressFile> file;
};

Served serve_everywhere(const char* host) {
  Served served;
  Address& address = served.address;
  address.kind = Address::Kind::kServed;
  address.host_id = host_identity();
  address.token = random_hex(16);
  Endpoint unix_endpoint;
  unix_endpoint.unix_name = "symm-" + random_hex(8);
  served.listeners.push_back(Listener::open(unix_endpoint, true, address.token, nullptr));
  Endpoint tcp;
  if (host != nullptr) {
    tcp.host = host;
    // A name that others know this host by need not be one this host can bind: then every
    // interface.
    bool in_use = false;
    try {
      served.listeners.push_back(Listener::open(tcp, true, address.token, &in_use));
    } catch (const Error&) {
      if (is_loopback(tcp.host)) throw;
      served.listeners.push_back(Listener::open(Endpoint{}, true, address.token, nullptr));
    }
    served.hosts = {host};
  } else {
    served.listeners.push_back(Listener::open(Endpoint{}, true, address.token, nullptr));
    served.hosts = interface_addresses();
  }
  const uint16_t port = served.listeners.back()->endpoint().port;
  address.endpoints.push_back(unix_endpoint);
  for (const std::string& name : served.hosts) {
    Endpoint endpoint;
    endpoint.host = name;
    endpoint.port = port;
    address.endpoints.push_back(endpoint);
  }
  return served;
}

// What rank 0 does before every attempt to find the server, which may be itself.
void serve(const Address& address, const std::string& file_path, Served* served) {
  switch (address.kind) {
    case Address::Kind::kServed:
      return;  // by the process that made it
    case Address::Kind::kTcp:
    case Address::Kind::kUnix: {
      if (!served->listeners.empty()) return;
      const Endpoint& endpoint = address.endpoints.at(0);
      if (!endpoint.is_unix()) {
        const bool everywhere = endpoint.host == "0.0.0.0" || endpoint.host == "::";
        served->hosts = everywhere ? interface_addresses() : std::vector{endpoint.host};
      }
      bool in_use = false;
      // Taken: by another communicator's rank 0, whose process then serves this one too, or by
      // something else, which the search finds out.
      auto listener = Listener::open(endpoint, true, address.token, &in_use);
      if (listener) served->listeners.push_back(std::move(listener));
      return;
    }
    case Address::Kind::kFile:
      if (served->file) return;
      served->file = AddressFile::claim(file_path, [&] {
        Served made = serve_everywhere(nullptr);
        served->listeners = std::move(made.listeners);
        served->hosts = std::move(made.hosts);
        served->address.token = made.address.token;
        return made.address;
      });
      // A rank that comes after its meeting has failed must still find its way to be told. Rank 0
      // itself is the first guest of the first listener.
      if (served->file) {
        served->listeners.front()->keep(
            std::make_shared<std::pair<std::shared_ptr<Listener>, std::shared_ptr<AddressFile>>>(
                served->listeners.back(), served->file));
      }
      return;
  }
}

// Where others may reach the star of rank 0 by TCP.
std::vector<std::string> star_hosts(const Address& address, const Served& served) {
  if (address.kind == Address::Kind::kUnix) return {};
  if (address.kind != Address::Kind::kServed && !served.hosts.empty()) return served.hosts;
  // Served by another process. On its host it is known how others name this one.
  if (address.host_id != host_identity()) return interface_addresses();
  std::vector<std::string> hosts;
  for (const Endpoint& endpoint : address.endpoints) {
    if (!endpoint.is_unix()) hosts.push_back(endpoint.host);
  }
  return hosts;
}

// Communicators that are created at once over one file have names of their own, and files too: each
// comes and goes with its own meeting.
std::string file_of(const Address& address, const std::string& name) {
  if (address.kind != Address::Kind::kFile || name.empty()) return address.path;
  return text(address.path, ".", digest_hex(name).substr(0, 16));
}

}  // namespace

RankInfo own_rank_info(int32_t device) {
  RankInfo info;
  info.host_id = host_identity();
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  info.host_name = name;
  info.process_id = process_identity();
  info.pid = getpid();
  info.device = device;
  return info;
}

StarAddress open_star(const StarHub& hub, const std::vector<std::string>& listen_hosts,
                      std::vector<std::shared_ptr<Listener>>* listeners) {
  StarAddress star;
  star.uid = hub.uid();
  Endpoint unix_endpoint;
  unix_endpoint.unix_name = "symm-" + random_hex(8);
  listeners->push_back(Listener::open(unix_endpoint, false, "", nullptr));
  star.endpoints.push_back(unix_endpoint);
  const bool reachable = std::any_of(listen_hosts.begin(), listen_hosts.end(),
                                     [](const std::string& host) { return !is_loopback(host); });
  if (!reachable) return star;
  // One address: listen there alone. Several, or a name that is not this host's own: everywhere.
  std::shared_ptr<Listener> listener;
  if (listen_hosts.size() == 1) {
    try {
      Endpoint endpoint;
      endpoint.host = listen_hosts[0];
      listener = Listener::open(endpoint, false, "", nullptr);
    } catch (const Error&) {
      listener = nullptr;
    }
  }
  if (!listener) listener = Listener::open(Endpoint{}, false, "", nullptr);
  for (const std::string& host : listen_hosts) {
    if (is_loopback(host)) continue;
    Endpoint endpoint;
    endpoint.host = host;
    endpoint.port = listener->endpoint().port;
    star.endpoints.push_back(endpoint);
  }
  listeners->push_back(std::move(listener));
  return star;
}

Meeting meet(const Address& address, const std::string& address_text, Hello hello,
             Deadline deadline) {
  Meeting meeting;
  Served served;
  const auto stay_short = [&] { deadline = deadline.sooner(Deadline::after_ms(kTellMs)); };
  // A rank whose own call is wrong does not wait for others.
  if (hello.failure.status != SYMM_OK) stay_short();
  // What keeps rank 0 from going on. The others are told, for which the descriptors of what it has
  // opened may be needed.
  Failure own;
  const auto give_up = [&](const Failure& failure) {
    own = failure;
    meeting = Meeting();
    if (hello.failure.status == SYMM_OK) hello.failure = own;
    stay_short();
  };
  const auto throw_own = [&own] {
    if (own.status != SYMM_OK) throw Error(own.status, own.message, own.rank);
  };
  const std::string file_path = file_of(address, hello.name);
  std::function<bool()> serve_if_rank_0 = [] { return false; };
  if (hello.rank == 0) {
    serve_if_rank_0 = [&] {
      serve(address, file_path, &served);
      return address.kind != Address::Kind::kServed && served.listeners.empty();
    };
    serve_if_rank_0();
    const Failure failure = attempt([&] {
      meeting.hub = StarHub::open(hello.size);
      hello.star = open_star(*meeting.hub, star_hosts(address, served), &meeting.listeners);
    });
    if (failure.status != SYMM_OK) give_up(failure);
  }
  std::unique_ptr<Visit> visit;
  while (!visit) {
    try {
      visit = Search(address, address_text, file_path, deadline, serve_if_rank_0).run(hello);
    } catch (const Error& e) {
      throw_own();
      if (e.status() != SYMM_SYSTEM || !meeting.hub) throw;
      give_up(failure_of(e));
    }
  }
  const bool by_rank_0 = address.kind != Address::Kind::kServed;
  const std::string server =
      text(by_rank_0 ? "rank 0" : "the process", ", which serves address \"", address_text, "\",");
  Welcome welcome = [&] {
    try {
      return visit->outcome(deadline, server, by_rank_0 ? 0 : kNoRank);
    } catch (const Error& e) {
      // Rank 0 may exit on an error that is in the ranks' calls. Those that start a little later
      // should be told first. A death is told at once, and nobody came who could be told after a
      // timeout.
      if (!is_sticky(e.status()) && !served.listeners.empty()) {
        wait_until_told(served.address.token, hello.name, deadline);
      }
      throw_own();
      throw;
    }
  }();
  if (static_cast<int>(welcome.roster.size()) != hello.size) {
    throw Error(SYMM_INTERNAL, "the meeting's roster has another size than the communicator");
  }
  meeting.roster = std::move(welcome.roster);
  meeting.star = std::move(welcome.star);
  meeting.attendance = std::move(visit);
  return meeting;
}

std::string create_served_address(const char* host) {
  if (host != nullptr) {
    std::string fault;
    if (!parse_tcp_endpoint(host, "1", &fault)) {
      throw Error(SYMM_INVALID_ARGUMENT, text("host \"", host, "\": ", fault,
                                              "; give a name or number of this host, or NULL"));
    }
  }
  // One listener of each kind serves all addresses of a process that name the same host.
  struct Kept {
    uint64_t generation = 0;
    std::map<std::string, Served> by_host;
  };
  static Kept* kept = new Kept;
  std::lock_guard lock(global_mutex(GlobalLock::kServedAddresses));
  if (kept->generation != process_generation()) {
    kept->by_host.clear();
    kept->generation = process_generation();
  }
  const std::string key = host == nullptr ? "" : host;
  auto found = kept->by_host.find(key);
  if (found == kept->by_host.end()) {
    found = kept->by_host.emplace(key, serve_everywhere(host)).first;
  } else {
    // The sockets are the first address's; the secret is this one's own.
    found->second.address.token = random_hex(16);
    for (const auto& listener : found->second.listeners) {
      listener->serve_token(found->second.address.token);
    }
  }
  return format_served_address(found->second.address);
}

}  // namespace symm
