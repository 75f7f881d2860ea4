#include "core/rendezvous.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "core/attempt.h"
#include "core/meeting.h"
#include "core/process.h"
#include "core/serving.h"

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
  // free, and says whether another has it. *address turns into a PyTorch store's where one is
  // found there.
  using Serve = std::function<bool(Deadline soon, std::string* problem)>;
  Search(Address* address, const std::string& address_text, const std::string& place,
         Deadline deadline, Serve serve)
      : address_(*address),
        address_text_(address_text),
        place_(place),
        deadline_(deadline),
        serve_(std::move(serve)) {}

  std::unique_ptr<Visit> run(Hello hello) {
    auto pause = std::chrono::duration_cast<Clock::duration>(kFirstPause);
    for (;;) {
      const std::string before = problem_;
      in_use_ = serve_(soon(), &problem_);
      for (const auto& [endpoint, token] : candidates()) {
        hello.token = token;
        if (auto visit = attempt(endpoint, hello)) return visit;
        if (deadline_.passed()) break;
      }
      if (deadline_.passed()) {
        // The last attempt may have had no time to find out what the one before did.
        if (!before.empty()) problem_ = before;
        give_up(hello);
      }
      std::this_thread::sleep_until(std::min(Clock::now() + pause, deadline_.when()));
      pause = std::min<Clock::duration>(pause * 2, kLongestPause);
    }
  }

 private:
  using Candidates = std::vector<std::pair<Endpoint, std::string>>;

  Deadline soon() const { return Deadline::after_ms(kAnswerMs).sooner(deadline_); }

  Candidates candidates() {
    Address served = address_;
    if (written_down()) {
      const auto written = address_.kind == Address::Kind::kFile
                               ? read_address_file(place_, &problem_)
                               : read_store();
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

  std::optional<Address> read_store() {
    try {
      if (!store_) store_ = TorchStore::connect(address_.endpoints.at(0), soon(), &problem_);
      if (store_) {
        store_->set_deadline(soon());
        return read_store_entry(*store_, place_, &problem_);
      }
    } catch (const StoreError& e) {
      problem_ = e.what();
      store_.reset();
    }
    // torch.distributed may have ended it. Whether the port is free now, or again a store's, is
    // seen in the next attempt.
    if (!store_ && std::exchange(address_.store_found, false)) {
      address_.kind = Address::Kind::kTcp;
    }
    return std::nullopt;
  }

  // In a file or a store, where what a dead job wrote may still be.
  bool written_down() const {
    return address_.kind == Address::Kind::kFile || address_.kind == Address::Kind::kStore;
  }

  std::unique_ptr<Visit> attempt(const Endpoint& endpoint, const Hello& hello) {
    const Deadline until = soon();
    int error = 0;
    std::string detail;
    Fd fd = connect_once(endpoint, until, &error, &detail);
    if (!fd) {
      problem_ = text(endpoint.display(), ": ", detail.empty() ? errno_text(error) : detail);
      if (lacks_resources(error)) {
        throw Error(SYMM_SYSTEM, text("cannot connect to ", problem_));
      }
      return nullptr;
    }
    auto visit = std::make_unique<Visit>(std::move(fd), hello);
    std::string problem;
    if (!visit->received(until, &problem)) {
      std::string no_store;
      if (!turn_to_store(soon(), &address_, &no_store)) {
        problem_ = text(endpoint.display(), ": ", problem);
      }
      return nullptr;
    }
    if (visit->refused_as_another_job()) {
      problem_ = text(endpoint.display(), ": ", kAnotherJob);
      // A dead job's may name a port that a live one uses now; the right one is yet to come.
      if (written_down()) return nullptr;
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

  Address& address_;
  const std::string& address_text_;
  const std::string& place_;
  const Deadline deadline_;
  const Serve serve_;
  std::unique_ptr<TorchStore> store_;  // kept from one attempt to the next
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

Meeting meet(Address address, const std::string& address_text, Hello hello, Deadline deadline) {
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
  const std::string place = place_of(address, hello.name);
  Search::Serve serve_if_rank_0 = [](Deadline, std::string*) { return false; };
  if (hello.rank == 0) {
    serve_if_rank_0 = [&](Deadline soon, std::string* problem) {
      return serve(place, soon, address, &served, problem);
    };
    std::string problem;  // met again in the search
    serve_if_rank_0(Deadline::after_ms(kAnswerMs).sooner(deadline), &problem);
    const Failure failure = attempt([&] {
      meeting.hub = StarHub::open(hello.size);
      hello.star = open_star(*meeting.hub, star_hosts(address, served), &meeting.listeners);
    });
    if (failure.status != SYMM_OK) give_up(failure);
  }
  std::unique_ptr<Visit> visit;
  while (!visit) {
    try {
      visit = Search(&address, address_text, place, deadline, serve_if_rank_0).run(hello);
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
      keep_for_latecomers(served);
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

}  // namespace symm
