#include "core/listener.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <mutex>

#include "core/meeting.h"
#include "core/process.h"
#include "core/star.h"

namespace symm {
namespace {

constexpr auto kHandshakeTime = std::chrono::seconds(10);
// Beyond this many strangers the oldest is dropped: real ranks finish their handshake in
// milliseconds.
constexpr size_t kMostGuests = 512;

// Guarded by GlobalLock::kListeners. Never destroyed.
struct Registry {
  uint64_t generation = 0;
  std::map<std::string, std::weak_ptr<Listener>> listeners;
};
Registry& registry() {
  static Registry* instance = new Registry;
  return *instance;
}

}  // namespace

std::shared_ptr<Listener> Listener::open(const Endpoint& endpoint, bool serves_meetings,
                                         const std::string& token, bool* in_use) {
  std::lock_guard lock(global_mutex(GlobalLock::kListeners));
  if (registry().generation != process_generation()) {
    // A forked child: the parent's listeners are closed here.
    registry().generation = process_generation();
    registry().listeners.clear();
  }
  const bool shareable = endpoint.is_unix() || endpoint.port != 0;
  const std::string key =
      text(endpoint.display(), serves_meetings ? " meetings " : " stars ", token);
  if (shareable) {
    const auto found = registry().listeners.find(key);
    if (found != registry().listeners.end()) {
      if (auto listener = found->second.lock()) return listener;
    }
  }
  Fd fd = listen_at(endpoint, in_use);
  if (!fd) return nullptr;
  Endpoint bound = endpoint;
  if (!endpoint.is_unix()) bound.port = local_endpoint(fd.get()).port;
  const std::shared_ptr<Listener> listener(
      new Listener(bound, std::move(fd), serves_meetings, token),
      [generation = process_generation()](Listener* l) {
        if (generation != process_generation()) return;  // a forked child's copy of the parent's
        // The end is the helper thread's. Its return is waited for, so that the address is free for
        // whoever listens there next.
        const auto reactor = l->reactor_;
        reactor->run_and_wait([l] { delete l; });
      });
  listener->reactor_->run_and_wait([&] {
    listener->reactor_->watch(listener->fd_.get(), EPOLLIN,
                              [l = listener.get()](uint32_t) { l->accept_all(); });
  });
  std::erase_if(registry().listeners, [](const auto& entry) { return entry.second.expired(); });
  if (shareable) registry().listeners[key] = listener;
  return listener;
}

Listener::Listener(Endpoint endpoint, Fd fd, bool serves_meetings, std::string token)
    : reactor_(Reactor::acquire()),
      endpoint_(std::move(endpoint)),
      fd_(std::move(fd)),
      reserve_(::open("/dev/null", O_RDONLY | O_CLOEXEC)),
      serves_meetings_(serves_meetings),
      tokens_{std::move(token)} {
  if (!reserve_ && (errno == EMFILE || errno == ENFILE)) {
    throw Error(SYMM_SYSTEM,
                text("cannot listen at ", endpoint_.display(), ": ", errno_text(errno)));
  }
}

void Listener::serve_token(const std::string& token) {
  reactor_->run_and_wait([&] { tokens_.insert(token); });
}

Listener::~Listener() {
  for (Guest& guest : guests_) {
    reactor_->cancel(guest.timer);
    guest.connection->close();
  }
  reactor_->unwatch(fd_.get());
}

void Listener::accept_all() {
  for (int turn = 0; turn < 64; ++turn) {
    Fd fd(accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) {
      if ((errno == EMFILE || errno == ENFILE) && reserve_) {
        reserve_.reset();
        Fd dropped(accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        // Who looks for a meeting tries again; who comes to a star has no other place to go.
        if (dropped && !serves_meetings_) {
          const Bytes why = encode_frame(
              kRefused,
              encode(Failure{SYMM_SYSTEM, 0,
                             text("rank 0 has no room for the connection of another rank: ",
                                  errno_text(EMFILE))}));
          [[maybe_unused]] const ssize_t n =
              ::send(dropped.get(), why.data(), why.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        }
        dropped.reset();
        reserve_ = Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
        continue;
      }
      return;
    }
    // Another user of this machine has no business here, and abstract sockets have no permissions.
    if (endpoint_.is_unix() && peer_credentials(fd.get()).uid != geteuid()) continue;
    admit(std::move(fd));
  }
}

void Listener::admit(Fd fd) {
  if (!endpoint_.is_unix()) tune_connection(fd.get());
  if (guests_.size() >= kMostGuests) release(guests_.begin())->close();
  const auto connection =
      std::make_shared<Connection>(*reactor_, std::move(fd), kMostHandshakePayload);
  const auto guest = guests_.insert(guests_.end(), Guest{connection, {}});
  guest->timer =
      reactor_->at(Clock::now() + kHandshakeTime, [this, guest] { release(guest)->close(); });
  try {
    connection->start([this, guest](Frame frame) { handshake(guest, frame); },
                      [this, guest](const std::string&) { release(guest); });
  } catch (const Error&) {
    release(guest)->close();
  }
}

std::shared_ptr<Connection> Listener::release(Guests::iterator guest) {
  auto connection = std::move(guest->connection);
  reactor_->cancel(guest->timer);
  guests_.erase(guest);
  return connection;
}

void Listener::handshake(Guests::iterator guest, const Frame& frame) {
  const auto refuse = [](Connection& connection, symm_status status, const std::string& why) {
    connection.send(kRefused, encode(Failure{status, kNoRank, why}));
    connection.close_after_flush(std::chrono::seconds(2));
  };
  try {
    if (frame.type == kHello && serves_meetings_) {
      Hello hello = decode_hello(frame.payload);
      const auto connection = release(guest);
      if (!tokens_.contains(hello.token)) {
        refuse(*connection, SYMM_INVALID_ARGUMENT, kAnotherJob);
        return;
      }
      if (const auto self = weak_from_this().lock()) {
        connection->send(kReceived, {});
        Meetings::of(*reactor_).arrive(self, connection, std::move(hello));
      } else {
        connection->close();  // closing down; the caller tries again
      }
      return;
    }
    if (frame.type == kJoin) {
      const Join join = decode_join(frame.payload);
      const auto connection = release(guest);
      if (!StarHub::admit(join, connection)) {
        refuse(*connection, SYMM_PEER, "the communicator to be joined has ended");
      }
      return;
    }
  } catch (const WireError&) {
    // Not one of us; dropped like any other stranger. The guest is still there: decoding threw
    // first.
  }
  release(guest)->close();
}

}  // namespace symm
