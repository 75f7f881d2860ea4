// A listening socket of this process, and the handshake of what connects to it.
//
// The first frame decides: HELLO goes to the meetings (core/meeting.h) if its token is one that is
// served here, JOIN to the star it names (core/star.h). Whoever says nothing sensible within a
// short time is dropped, and costs nobody else anything.
#ifndef SYMM_CORE_LISTENER_H_
#define SYMM_CORE_LISTENER_H_

#include <list>
#include <memory>
#include <set>
#include <string>

#include "core/connection.h"
#include "core/messages.h"

namespace symm {

class Listener : public std::enable_shared_from_this<Listener> {
 public:
  // Any thread. Listens and accepts until the last reference is gone. `token` is the one whose
  // meetings are served; a listener for stars alone has none. Throws SYSTEM; returns null with
  // *in_use set where another process has the address. Listeners of equal endpoint and token are
  // one in a process.
  static std::shared_ptr<Listener> open(const Endpoint& endpoint, bool serves_meetings,
                                        const std::string& token, bool* in_use);
  ~Listener();

  // Any thread: serves meetings of this token too.
  void serve_token(const std::string& token);

  // Lives as long as this listener: what else serves the same address.
  void keep(std::shared_ptr<void> companion) { companion_ = std::move(companion); }

  // Where it listens; of a TCP listener the port is the one chosen.
  const Endpoint& endpoint() const { return endpoint_; }

 private:
  struct Guest {
    std::shared_ptr<Connection> connection;
    Reactor::Timer timer;
  };
  using Guests = std::list<Guest>;

  Listener(Endpoint endpoint, Fd fd, bool serves_meetings, std::string token);
  void accept_all();
  void admit(Fd fd);
  void handshake(Guests::iterator guest, const Frame& frame);
  std::shared_ptr<Connection> release(Guests::iterator guest);

  std::shared_ptr<Reactor> reactor_;
  Endpoint endpoint_;
  Fd fd_;
  Fd reserve_;  // given up for a moment to accept and drop a connection when fds have run out
  std::shared_ptr<void> companion_;
  bool serves_meetings_;
  std::set<std::string> tokens_;
  Guests guests_;
};

}  // namespace symm

#endif  // SYMM_CORE_LISTENER_H_
