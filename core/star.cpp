#include "core/star.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "core/process.h"
#include "core/text.h"

namespace symm {
namespace {

constexpr auto kLinger = std::chrono::seconds(10);

// Guarded by GlobalLock::kStars. Never destroyed.
struct Registry {
  std::map<std::string, std::weak_ptr<StarHub>> hubs;
};
Registry& registry() {
  static Registry* instance = new Registry;
  return *instance;
}

}  // namespace

std::shared_ptr<StarHub> StarHub::open(int size) {
  const std::shared_ptr<StarHub> hub(new StarHub(size));
  std::lock_guard lock(global_mutex(GlobalLock::kStars));
  std::erase_if(registry().hubs, [](const auto& entry) { return entry.second.expired(); });
  registry().hubs[hub->uid_] = hub;
  return hub;
}

StarHub::StarHub(int size)
    : reactor_(Reactor::acquire()), uid_(random_hex(16)), members_(static_cast<size_t>(size)) {}

void StarHub::add_local(Fd fd, const Join& join) {
  auto shared = std::make_shared<Fd>(std::move(fd));
  reactor_->post([self = shared_from_this(), shared, join] {
    const auto connection =
        std::make_shared<Connection>(*self->reactor_, std::move(*shared), kMostStarPayload);
    try {
      connection->start([](const Frame&) {}, [](const std::string&) {});
    } catch (const Error&) {
      return;  // not even epoll has room: the other end sees the connection end
    }
    self->join(join, connection);
  });
}

bool StarHub::admit(const Join& join, const std::shared_ptr<Connection>& connection) {
  std::shared_ptr<StarHub> hub;
  {
    std::lock_guard lock(global_mutex(GlobalLock::kStars));
    const auto found = registry().hubs.find(join.uid);
    if (found != registry().hubs.end()) hub = found->second.lock();
  }
  if (hub == nullptr || hub->leaving_) return false;
  // Knowing the uid, which only the meeting's server and its ranks do, is what proves membership.
  if (join.rank < 0 || join.rank >= static_cast<int>(hub->members_.size())) return false;
  if (hub->members_[static_cast<size_t>(join.rank)].joined) return false;
  hub->join(join, connection);
  return true;
}

void StarHub::join(const Join& join, const std::shared_ptr<Connection>& connection) {
  Member& member = members_[static_cast<size_t>(join.rank)];
  member.joined = true;
  member.process_id = join.process_id;
  member.connection = connection;
  connection->hand_over(
      kMostStarPayload, true,
      [weak = weak_from_this(), rank = join.rank](const Frame& f) {
        if (const auto self = weak.lock()) self->frame(rank, f);
      },
      [weak = weak_from_this(), rank = join.rank](const std::string& reason) {
        if (const auto self = weak.lock()) self->gone(rank, reason);
      });
  connection->send(kJoined, {});
  if (fault_) connection->send(kFault, encode(*fault_));
}

void StarHub::frame(int rank, const Frame& frame) {
  Member& member = members_[static_cast<size_t>(rank)];
  try {
    switch (frame.type) {
      case kGather: {
        Gather gather = decode_gather(frame.payload);
        if (gather.has_fd) {
          auto fds = member.connection->take_fds(1);
          if (fds.empty()) {
            fds_lost_ = true;
          } else {
            member.fd = std::make_shared<Fd>(std::move(fds[0]));
          }
        }
        this->gather(rank, std::move(gather));
        return;
      }
      case kExpired:
        expired(decode_expired(frame.payload).step, rank);
        return;
      case kFault:
        fault(decode_failure(frame.payload));
        return;
      case kGoodbye:
        member.left = true;
        if (const auto connection = std::exchange(member.connection, nullptr)) {
          connection->close_after_flush(kLinger);
        }
        if (rank == 0) {
          leave();
        } else {
          look_for_leavers();
        }
        return;
      default:
        throw WireError(text("a frame of type ", frame.type));
    }
  } catch (const WireError& e) {
    if (const auto connection = std::exchange(member.connection, nullptr)) connection->close();
    fault({SYMM_PEER, rank, text("rank ", rank, " sent what is not symm's protocol: ", e.what())});
  }
}

void StarHub::gather(int rank, Gather gather) {
  Member& member = members_[static_cast<size_t>(rank)];
  // A rank that has not heard of the fault yet; the answer is on its way.
  if (fault_) return;
  if (gather.step != step_ || member.gather) {
    fault({SYMM_INTERNAL, rank,
           text("rank ", rank, " is in step ", gather.step, " where step ", step_, " is due")});
    return;
  }
  for (size_t other = 0; other < members_.size(); ++other) {
    const auto& theirs = members_[other].gather;
    if (theirs && theirs->kind != gather.kind) {
      fault({SYMM_MISMATCH, rank,
             text("the ranks called different things: rank ", other, " is in ", theirs->kind,
                  ", rank ", rank, " in ", gather.kind)});
      return;
    }
  }
  member.gather = std::move(gather);
  // Those who are on their way to this step may be waiting elsewhere for what will not come.
  if (Failure failure = member.gather->failure; failure.status != SYMM_OK) {
    if (failure.rank == kNoRank) failure.rank = rank;
    broadcast(kDoomed, failure);
  }
  const bool complete = std::all_of(members_.begin(), members_.end(),
                                    [](const Member& m) { return m.gather.has_value(); });
  if (complete) {
    complete_step();
  } else {
    look_for_leavers();
  }
}

void StarHub::complete_step() {
  Result result;
  result.step = step_;
  // The lowest rank whose failure is its own; failing that, the lowest that blames another.
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    const Failure& failure = members_[rank].gather->failure;
    if (failure.status == SYMM_OK) continue;
    const bool own = failure.rank == kNoRank || failure.rank == static_cast<int>(rank);
    if (!own && result.failure.status != SYMM_OK) continue;
    result.failure = failure;
    result.failure.rank = static_cast<int>(rank);
    if (own) break;
  }
  if (std::exchange(fds_lost_, false) && result.failure.status == SYMM_OK) {
    result.failure = {SYMM_SYSTEM, 0, fds_lost_text()};
  }
  const bool failed = result.failure.status != SYMM_OK;
  if (!failed) {
    for (Member& member : members_) result.blobs.push_back(std::move(member.gather->blob));
  }
  for (Member& to : members_) {
    if (!to.connection) continue;
    SharedFds fds;
    result.fd_ranks.clear();
    for (size_t rank = 0; rank < members_.size() && !failed; ++rank) {
      // Ranks of one process share what they have without the kernel's help.
      const Member& from = members_[rank];
      if (from.fd && from.process_id != to.process_id) {
        fds.push_back(from.fd);
        result.fd_ranks.push_back(static_cast<int32_t>(rank));
      }
    }
    to.connection->send(kResult, encode(result), std::move(fds));
  }
  for (Member& member : members_) {
    member.gather.reset();
    member.fd.reset();
  }
  ++step_;
}

void StarHub::expired(uint64_t step, int by) {
  // The step may have completed while the message was on its way: then its result stands.
  if (fault_ || step != step_) return;
  std::vector<int> missing;
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    if (!members_[rank].gather) missing.push_back(static_cast<int>(rank));
  }
  if (missing.empty()) return;
  const auto& gather = members_[static_cast<size_t>(by)].gather;
  fault({SYMM_TIMEOUT, missing.front(),
         text(rank_list(missing), " of ", members_.size(), " did not arrive in ",
              gather ? gather->kind : "the step", " before its deadline")});
}

// A rank that has left cannot be waited for. Only a step that others have begun needs it.
void StarHub::look_for_leavers() {
  const auto waits =
      std::find_if(members_.begin(), members_.end(), [](const Member& m) { return m.gather; });
  if (waits == members_.end()) return;
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    if (members_[rank].left && !members_[rank].gather) {
      fault({SYMM_PEER, static_cast<int>(rank),
             has_left_text(static_cast<int>(rank), waits->gather->kind)});
      return;
    }
  }
}

void StarHub::gone(int rank, const std::string& reason) {
  Member& member = members_[static_cast<size_t>(rank)];
  member.connection.reset();
  if (member.left) return;
  if (rank == 0) {
    // This very process: it let go of its communicator while that was being made.
    member.left = true;
    leave();
    return;
  }
  fault({SYMM_PEER, rank,
         text("rank ", rank, " died: its connection ended without a goodbye (", reason, ")")});
}

void StarHub::fault(Failure failure) {
  if (fault_) return;
  fault_ = std::move(failure);
  broadcast(kFault, *fault_);
  for (Member& member : members_) {
    member.gather.reset();
    member.fd.reset();
  }
}

template <class Message>
void StarHub::broadcast(uint32_t type, const Message& message) {
  const Bytes payload = encode(message);
  // Sending may end a connection and call gone(), which changes members_' connections.
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    const auto connection = members_[rank].connection;
    if (connection) connection->send(type, payload);
  }
}

void StarHub::outlive_references() {
  {
    std::lock_guard lock(global_mutex(GlobalLock::kStars));
    registry().hubs.erase(uid_);
  }
  reactor_->post([self = shared_from_this()] {
    // Rank 0 may have been lost before it could say goodbye: its socketpair found no descriptor,
    // say.
    if (self->leaving_ || !self->members_[0].connection) {
      self->leave();
    } else {
      self->self_ = self;
      // An exit waits for this goodbye as for any frame that is not sent yet.
      self->reactor_->add_unsent(1);
    }
  });
}

void StarHub::leave() {
  const auto self = std::move(self_);
  leaving_ = true;
  for (Member& member : members_) {
    if (const auto connection = std::exchange(member.connection, nullptr)) {
      connection->send(kGoodbye, {});
      connection->close_after_flush(kLinger);
    }
  }
  if (self) reactor_->add_unsent(-1);
}

}  // namespace symm
