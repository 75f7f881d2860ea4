#include "core/exchange.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "core/process.h"
#include "core/text.h"

namespace symm {
namespace {

// How long after its own deadline a rank waits for the hub's word on the step. The hub answers in
// microseconds unless its process is stopped.
constexpr auto kGrace = std::chrono::milliseconds(700);
constexpr auto kLinger = std::chrono::seconds(10);

Error error_of(const Failure& failure, int own_rank) {
  // The rank itself reads its own words; the others read whose they are.
  const bool own = failure.rank == own_rank || failure.rank == kNoRank;
  return Error(failure.status,
               own ? failure.message : text("rank ", failure.rank, " failed: ", failure.message),
               failure.rank);
}

Fd connect_to_star(const StarAddress& star, const std::string& host_id_of_hub, int rank,
                   Deadline deadline) {
  std::string problems;
  const bool same_host = host_id_of_hub == host_identity();
  std::vector<Endpoint> ways;
  for (const Endpoint& endpoint : star.endpoints) {
    if (endpoint.is_unix() == same_host) ways.push_back(endpoint);
  }
  for (size_t i = 0; i < ways.size(); ++i) {
    const Endpoint& endpoint = ways[i];
    int error = 0;
    std::string detail;
    Fd fd = connect_once(endpoint, deadline.share(ways.size() - i), &error, &detail);
    if (fd) return fd;
    // Of this rank and not of rank 0, as is another user's socket (EACCES).
    if (lacks_resources(error) || (error == EACCES && endpoint.is_unix())) {
      throw Error(SYMM_SYSTEM,
                  text("rank ", rank, " cannot connect to rank 0 at ", endpoint.display(), ": ",
                       detail.empty() ? errno_text(error) : detail));
    }
    problems += text(problems.empty() ? "" : "; ", endpoint.display(), ": ",
                     detail.empty() ? errno_text(error) : detail);
  }
  if (problems.empty()) {
    problems =
        "it is on another host and has no TCP address that is reachable from here; use an "
        "address that names rank 0's host as the others see it, not a loopback one";
  }
  throw Error(SYMM_PEER, text("rank ", rank, " cannot connect to rank 0: ", problems), 0);
}

}  // namespace

std::shared_ptr<Exchange> Exchange::open(const StarAddress& star,
                                         const std::shared_ptr<StarHub>& hub, int rank,
                                         const std::string& host_id_of_hub, Deadline deadline) {
  const std::shared_ptr<Exchange> exchange(new Exchange(rank, hub));
  const Join join{star.uid, rank, process_identity()};
  if (hub != nullptr) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) {
      throw Error(SYMM_SYSTEM, text("socketpair: ", errno_text(errno)));
    }
    Fd mine(pair[0]);
    Fd hubs(pair[1]);
    // Either may have had to move above the standard streams.
    if (!mine || !hubs) throw Error(SYMM_SYSTEM, text("socketpair: ", errno_text(EMFILE)));
    hub->add_local(std::move(hubs), join);
    exchange->start(std::move(mine), nullptr);
  } else {
    exchange->start(connect_to_star(star, host_id_of_hub, rank, deadline), &join);
  }
  return exchange;
}

void Exchange::wait_until_joined(Deadline deadline) {
  std::unique_lock lock(shared_->mutex);
  Shared& shared = *shared_;
  shared.changed.wait_until(lock, deadline.when(), [&] {
    return shared.joined || shared.refused || shared.fault || shared.closed;
  });
  // The end of the connection follows its refusal, and says less.
  if (shared.refused) throw Error(shared.refused->status, shared.refused->message, 0);
  if (shared.fault) throw Error(shared.fault->status, shared.fault->message, shared.fault->rank);
  if (shared.closed) {
    throw Error(SYMM_PEER, text("rank 0 ended the connection of rank ", rank_), 0);
  }
  if (!shared.joined) throw Error(SYMM_TIMEOUT, text("rank 0 does not answer rank ", rank_), 0);
}

Exchange::Exchange(int rank, std::shared_ptr<StarHub> hub)
    : rank_(rank), reactor_(Reactor::acquire()), hub_(std::move(hub)) {}

Exchange::~Exchange() { leave(); }

void Exchange::start(Fd fd, const Join* join) {
  const auto shared_fd = std::make_shared<Fd>(std::move(fd));
  const Bytes hello = join != nullptr ? encode(*join) : Bytes{};
  const bool says_join = join != nullptr;
  // Waited for, so that connection_ is there for every later task.
  reactor_->run_and_wait([this, shared_fd, hello, says_join] {
    connection_ = std::make_shared<Connection>(*reactor_, std::move(*shared_fd), kMostStarPayload);
    const auto shared = shared_;
    const std::weak_ptr<Connection> weak = connection_;
    connection_->start([](const Frame&) {}, [](const std::string&) {});
    connection_->hand_over(
        kMostStarPayload, true,
        [shared, weak](const Frame& f) {
          if (const auto connection = weak.lock()) on_frame(shared, *connection, f);
        },
        [shared](const std::string& reason) {
          bool hub_left;
          {
            std::lock_guard lock(shared->mutex);
            shared->closed = true;
            hub_left = shared->hub_left;
            shared->changed.notify_all();
          }
          if (!hub_left) {
            record_fault(shared, {SYMM_PEER, 0,
                                  text("rank 0 died: its connection ended without a goodbye (",
                                       reason, ")")});
          }
        });
    if (says_join) connection_->send(kJoin, hello);
  });
}

void Exchange::on_frame(const std::shared_ptr<Shared>& shared, Connection& connection,
                        const Frame& frame) {
  try {
    switch (frame.type) {
      case kJoined: {
        std::lock_guard lock(shared->mutex);
        shared->joined = true;
        shared->changed.notify_all();
        return;
      }
      case kRefused: {
        std::lock_guard lock(shared->mutex);
        shared->refused = decode_failure(frame.payload);
        shared->changed.notify_all();
        return;
      }
      case kResult: {
        Result result = decode_result(frame.payload);
        std::vector<Fd> fds = connection.take_fds(result.fd_ranks.size());
        std::lock_guard lock(shared->mutex);
        shared->result = std::move(result);
        shared->result_fds = std::move(fds);
        shared->doomed.reset();
        shared->changed.notify_all();
        return;
      }
      case kDoomed: {
        const Failure failure = decode_failure(frame.payload);
        OnDoomed on_doomed;
        {
          std::lock_guard lock(shared->mutex);
          if (!shared->doomed) shared->doomed = failure;
          on_doomed = shared->on_doomed;
        }
        if (on_doomed) on_doomed(failure);
        return;
      }
      case kFault:
        record_fault(shared, decode_failure(frame.payload));
        return;
      case kGoodbye: {
        std::lock_guard lock(shared->mutex);
        shared->hub_left = true;
        shared->changed.notify_all();
        return;
      }
      default:
        throw WireError(text("a frame of type ", frame.type));
    }
  } catch (const WireError& e) {
    record_fault(shared,
                 {SYMM_PEER, 0, text("rank 0 sent what is not symm's protocol: ", e.what())});
  }
}

void Exchange::record_fault(const std::shared_ptr<Shared>& shared, const Failure& failure) {
  OnFault on_fault;
  {
    std::lock_guard lock(shared->mutex);
    if (shared->fault) return;
    shared->fault = failure;
    on_fault = shared->on_fault;
    shared->changed.notify_all();
  }
  if (on_fault) on_fault(failure);
}

void Exchange::set_on_fault(OnFault on_fault) {
  std::optional<Failure> fault;
  {
    std::lock_guard lock(shared_->mutex);
    shared_->on_fault = on_fault;
    fault = shared_->fault;
  }
  if (fault) on_fault(*fault);
}

void Exchange::set_on_doomed(OnDoomed on_doomed) {
  std::optional<Failure> doomed;
  {
    std::lock_guard lock(shared_->mutex);
    shared_->on_doomed = on_doomed;
    doomed = shared_->doomed;
  }
  if (doomed && on_doomed) on_doomed(*doomed);
}

Exchange::Gathered Exchange::gather(const std::string& kind, Contribution contribution,
                                    Deadline deadline) {
  Gather gather;
  gather.step = step_++;
  gather.kind = kind;
  gather.failure = contribution.failure;
  gather.blob = std::move(contribution.blob);
  gather.has_fd = contribution.fd != nullptr && contribution.failure.status == SYMM_OK;
  const uint64_t step = gather.step;
  {
    std::lock_guard lock(shared_->mutex);
    shared_->result.reset();
    shared_->result_fds.clear();
  }
  SharedFds fds;
  if (gather.has_fd) fds.push_back(contribution.fd);
  reactor_->post([connection = connection_, payload = encode(gather), fds] {
    connection->send(kGather, payload, fds);
  });

  std::unique_lock lock(shared_->mutex);
  Shared& shared = *shared_;
  const auto ended = [&] { return shared.result || shared.fault || shared.hub_left; };
  if (!shared.changed.wait_until(lock, deadline.when(), ended)) {
    lock.unlock();
    reactor_->post([connection = connection_, payload = encode(Expired{step})] {
      connection->send(kExpired, payload);
    });
    lock.lock();
    shared.changed.wait_for(lock, kGrace, ended);
  }
  // The result first: a step that completed did so on every rank, whatever came after it.
  if (shared.result && shared.result->step == step) {
    Result result = std::move(*shared.result);
    shared.result.reset();
    if (result.failure.status != SYMM_OK) throw error_of(result.failure, rank_);
    Gathered gathered;
    gathered.blobs = std::move(result.blobs);
    gathered.fds.resize(gathered.blobs.size());
    gathered.fds_lost = shared.result_fds.size() < result.fd_ranks.size();
    for (size_t i = 0; i < shared.result_fds.size(); ++i) {
      gathered.fds[static_cast<size_t>(result.fd_ranks[i])] = std::move(shared.result_fds[i]);
    }
    shared.result_fds.clear();
    return gathered;
  }
  if (shared.fault) throw Error(shared.fault->status, shared.fault->message, shared.fault->rank);
  if (shared.hub_left) {
    throw Error(SYMM_PEER, has_left_text(0, kind), 0);
  }
  throw Error(SYMM_TIMEOUT, text("rank 0 does not answer in ", kind, " before the deadline"), 0);
}

void Exchange::Gathered::check_fds() const {
  if (fds_lost) throw Error(SYMM_SYSTEM, fds_lost_text());
}

void Exchange::send_fault(const Failure& failure) {
  reactor_->post(
      [connection = connection_, payload = encode(failure)] { connection->send(kFault, payload); });
}

void Exchange::leave() {
  if (left_.exchange(true, std::memory_order_relaxed)) return;
  {
    // The end of the connection is no death from here on, and nobody is left to be told.
    std::lock_guard lock(shared_->mutex);
    shared_->hub_left = true;
    shared_->on_fault = nullptr;
  }
  // The hub of rank 0 leaves when it reads this goodbye, after whatever this rank sent before it.
  if (hub_) hub_->outlive_references();
  hub_.reset();
  reactor_->post([connection = connection_] {
    if (!connection) return;
    connection->send(kGoodbye, {});
    connection->close_after_flush(kLinger);
  });
}

bool Exchange::is_doomed() const {
  std::lock_guard lock(shared_->mutex);
  return shared_->fault || shared_->doomed;
}

bool Exchange::hub_left() const {
  std::lock_guard lock(shared_->mutex);
  return shared_->hub_left;
}

}  // namespace symm
