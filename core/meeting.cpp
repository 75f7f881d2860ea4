#include "core/meeting.h"

#include <algorithm>

#include "core/process.h"
#include "core/text.h"

namespace symm {
namespace {

constexpr auto kLinger = std::chrono::seconds(5);
constexpr auto kMostTombstoneTime = std::chrono::seconds(60);

std::string who(const Hello& hello) {
  return text("rank ", hello.rank, " (pid ", hello.info.pid, " on ", hello.info.host_name, ")");
}

std::string device_text(int32_t device) {
  return device == SYMM_CPU ? "the CPU" : text("CUDA device ", device);
}

std::string key_of(const std::string& token, const std::string& name) {
  return text(token, '\n', name);
}

}  // namespace

bool Meetings::has_untold(const std::string& token, const std::string& name) const {
  return tombstones_.contains(key_of(token, name));
}

Meetings& Meetings::of(Reactor& reactor) {
  // One helper thread a process at a time; a new one, or a forked child, starts afresh. Meetings
  // hold the reactor, by themselves or by listeners, so none is lost with its thread.
  static Meetings* current = nullptr;
  static uint64_t generation = 0;
  if (current == nullptr || &current->reactor_ != &reactor || generation != process_generation()) {
    if (current != nullptr && generation == process_generation()) delete current;
    current = new Meetings(reactor);
    generation = process_generation();
  }
  return *current;
}

void Meetings::arrive(const std::shared_ptr<Listener>& listener,
                      const std::shared_ptr<Connection>& connection, Hello hello) {
  const std::string key = key_of(hello.token, hello.name);
  const auto grave = tombstones_.find(key);
  if (grave != tombstones_.end() && grave->second.told.insert(hello.rank).second) {
    connection->send(kRefused, encode(grave->second.failure));
    connection->close_after_flush(kLinger);
    if (static_cast<int>(grave->second.told.size()) >= grave->second.size) {
      reactor_.cancel(grave->second.timer);
      tombstones_.erase(grave);
    }
    return;
  }
  Meeting& meeting = meetings_[key];
  meeting.listeners.insert(listener);
  if (auto failure = conflict(meeting, hello)) {
    fail(key, std::move(*failure), &hello, connection);
    return;
  }
  const int rank = hello.rank;
  const int size = hello.size;
  connection->hand_over(
      kMostHandshakePayload, false, [this, key, rank](Frame f) { frame(key, rank, f); },
      [this, key, rank](const std::string& reason) { gone(key, rank, reason); });
  meeting.seats.emplace(rank, Seat{std::move(hello), connection});
  if (static_cast<int>(meeting.seats.size()) == size) complete(key);
}

// Compares a newcomer with those who are here already; with itself too, for what it says wrongly.
std::optional<Failure> Meetings::conflict(const Meeting& meeting, const Hello& hello) {
  const auto wrong = [&](symm_status status, const std::string& message) {
    return Failure{status, hello.rank, message};
  };
  if (hello.protocol_min > kProtocolMax || hello.protocol_max < kProtocolMin) {
    return wrong(
        SYMM_UNSUPPORTED,
        text("rank ", hello.rank, " has symm ", hello.version, ", which speaks protocols ",
             hello.protocol_min, "..", hello.protocol_max, "; the rank that serves has symm ",
             library_version(), ", which speaks ", kProtocolMin, "..", kProtocolMax,
             ": install the same version of symm on both"));
  }
  if (hello.failure.status != SYMM_OK) {
    return wrong(hello.failure.status,
                 text("the call of rank ", hello.rank, " failed: ", hello.failure.message));
  }
  if (hello.size < 1 || hello.size > kMostRanks || hello.rank < 0 || hello.rank >= hello.size) {
    return wrong(SYMM_INVALID_ARGUMENT, text(who(hello), " is not in 0..", hello.size - 1));
  }
  if (meeting.seats.empty()) return std::nullopt;
  const Hello& first = meeting.seats.begin()->second.hello;
  if (hello.size != first.size) {
    return wrong(SYMM_INVALID_ARGUMENT, text("size differs: ", who(hello), " says ", hello.size,
                                             ", ", who(first), " says ", first.size));
  }
  if (const auto other = meeting.seats.find(hello.rank); other != meeting.seats.end()) {
    return wrong(
        SYMM_INVALID_ARGUMENT,
        text("two callers claim rank ", hello.rank, ": pid ", other->second.hello.info.pid, " on ",
             other->second.hello.info.host_name, " and pid ", hello.info.pid, " on ",
             hello.info.host_name,
             "; give every rank a number of its own, and communicators that are created at "
             "once, or after a rank was restarted, different names"));
  }
  if ((hello.info.device == SYMM_CPU) != (first.info.device == SYMM_CPU)) {
    return wrong(SYMM_INVALID_ARGUMENT, text("CPU and CUDA ranks are mixed: ", who(hello),
                                             " is on ", device_text(hello.info.device), ", ",
                                             who(first), " on ", device_text(first.info.device)));
  }
  if (const auto differs = difference(hello.options, first.options)) {
    return wrong(SYMM_INVALID_ARGUMENT,
                 text("options.", differs->field, " differs: ", who(hello), " has ", differs->mine,
                      ", ", who(first), " has ", differs->theirs));
  }
  return std::nullopt;
}

void Meetings::frame(const std::string& key, int rank, const Frame& frame) {
  const auto found = meetings_.find(key);
  if (found == meetings_.end()) return;
  const Hello& hello = found->second.seats.at(rank).hello;
  if (frame.type == kExpired) {
    fail(key,
         Failure{
             SYMM_TIMEOUT, missing_ranks(found->second).front(),
             text(missing(found->second), " within the ", hello.options.timeout_ms,
                  " ms of options.timeout_ms; start every rank, with the same address and name")},
         nullptr, nullptr);
    return;
  }
  fail(key, Failure{SYMM_PEER, rank, text(who(hello), " sent what is not symm's protocol")},
       nullptr, nullptr);
}

void Meetings::gone(const std::string& key, int rank, const std::string& reason) {
  const auto found = meetings_.find(key);
  if (found == meetings_.end()) return;
  const auto seat = found->second.seats.find(rank);
  if (seat == found->second.seats.end()) return;
  fail(key,
       Failure{SYMM_PEER, rank,
               text(who(seat->second.hello), " died or gave up while the ranks were meeting (",
                    reason, ")")},
       nullptr, nullptr);
}

void Meetings::complete(const std::string& key) {
  Meeting meeting = std::move(meetings_.at(key));
  meetings_.erase(key);
  Welcome welcome;
  welcome.protocol = kProtocolMax;
  welcome.star = meeting.seats.at(0).hello.star;
  for (const auto& [rank, seat] : meeting.seats) {
    welcome.protocol = std::min(welcome.protocol, seat.hello.protocol_max);
    welcome.roster.push_back(seat.hello.info);
  }
  const Bytes payload = encode(welcome);
  const uint64_t number = next_number_++;
  Meeting& settling = settling_[number] = std::move(meeting);
  // Nobody is to come any more. Rank 0 may need the port for something else as soon as its call
  // has returned (env:// before torch.distributed), so nothing here holds it until then.
  settling.reactor = Reactor::acquire();
  settling.listeners.clear();
  std::vector<std::pair<int, std::shared_ptr<Connection>>> everyone;
  for (auto& [rank, seat] : settling.seats) everyone.emplace_back(rank, seat.connection);
  for (const auto& [rank, connection] : everyone) {
    connection->hand_over(
        kMostHandshakePayload, false,
        [this, number, rank = rank](const Frame& f) { settle(number, rank, &f); },
        [this, number, rank = rank](const std::string&) { settle(number, rank, nullptr); });
    connection->send(kWelcome, payload);
  }
}

// A rank is in its star (GOODBYE), or has given up (FAULT), or is lost (no last frame): in the two
// latter cases the others must not wait for it there.
void Meetings::settle(uint64_t number, int rank, const Frame* last) {
  // It crossed WELCOME.
  if (last != nullptr && last->type == kExpired) return;
  const auto found = settling_.find(number);
  if (found == settling_.end()) return;
  Meeting& meeting = found->second;
  const auto seat = meeting.seats.find(rank);
  if (seat == meeting.seats.end()) return;
  const Seat gone = std::move(seat->second);
  meeting.seats.erase(seat);
  const bool joined = last != nullptr && last->type == kGoodbye;
  if (!joined && !meeting.lost) {
    meeting.lost = true;
    Failure failure{SYMM_PEER, rank,
                    text(who(gone.hello), " died while the communicator was being created")};
    if (last != nullptr) {
      try {
        if (last->type != kFault) throw WireError(text("a frame of type ", last->type));
        failure = decode_failure(last->payload);
      } catch (const WireError& e) {
        failure.message = text(who(gone.hello), " sent what is not symm's protocol: ", e.what());
      }
    }
    const Bytes payload = encode(failure);
    for (auto& [other, theirs] : meeting.seats) theirs.connection->send(kRefused, payload);
  }
  // Last: a rank that gave up takes this for the sign that the others have been told.
  gone.connection->close();
  if (meeting.seats.empty()) settling_.erase(number);
}

std::vector<int> Meetings::missing_ranks(const Meeting& meeting) {
  std::vector<int> ranks;
  for (int rank = 0; rank < meeting.seats.begin()->second.hello.size; ++rank) {
    if (!meeting.seats.contains(rank)) ranks.push_back(rank);
  }
  return ranks;
}

std::string Meetings::missing(const Meeting& meeting) {
  return text(rank_list(missing_ranks(meeting)), " of ", meeting.seats.begin()->second.hello.size,
              " did not arrive");
}

void Meetings::fail(const std::string& key, Failure failure, const Hello* latest,
                    const std::shared_ptr<Connection>& latest_connection) {
  Meeting meeting = std::move(meetings_.at(key));
  meetings_.erase(key);
  Tombstone tombstone;
  tombstone.listeners = std::move(meeting.listeners);
  tombstone.failure = failure;
  int64_t timeout_ms = 0;
  const auto tell = [&](const Hello& hello, Connection& connection) {
    connection.send(kRefused, encode(failure));
    connection.close_after_flush(kLinger);
    tombstone.told.insert(hello.rank);
    tombstone.size = std::max(tombstone.size, std::min(hello.size, kMostRanks));
    timeout_ms = std::max<int64_t>(timeout_ms, hello.options.timeout_ms);
  };
  for (const auto& [rank, seat] : meeting.seats) tell(seat.hello, *seat.connection);
  if (latest != nullptr) tell(*latest, *latest_connection);
  if (static_cast<int>(tombstone.told.size()) >= tombstone.size) return;
  // A build of another protocol that came first told no deadline that can be read here.
  Clock::duration time = kMostTombstoneTime;
  if (timeout_ms > 0) time = std::min<Clock::duration>(std::chrono::milliseconds(timeout_ms), time);
  if (const auto old = tombstones_.find(key); old != tombstones_.end()) {
    reactor_.cancel(old->second.timer);
  }
  tombstone.timer = reactor_.at(Clock::now() + time, [this, key] { tombstones_.erase(key); });
  tombstones_.insert_or_assign(key, std::move(tombstone));
}

}  // namespace symm
