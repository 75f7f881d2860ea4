// Frames and file descriptors over one stream socket, in the helper thread.
#ifndef SYMM_CORE_CONNECTION_H_
#define SYMM_CORE_CONNECTION_H_

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/reactor.h"
#include "core/socket.h"
#include "core/wire.h"

namespace symm {

// File descriptors in flight: shared, since one may go to many peers.
using SharedFds = std::vector<std::shared_ptr<Fd>>;

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using OnFrame = std::function<void(Frame frame)>;
  // `reason` says what ended it; not called after close().
  using OnClosed = std::function<void(const std::string& reason)>;

  Connection(Reactor& reactor, Fd fd, size_t most_payload);
  ~Connection();

  // Helper thread only, all of these. start() makes the reactor keep the connection until it
  // closes.
  void start(OnFrame on_frame, OnClosed on_closed);
  // Replaces both callbacks: a connection passes from handshake to its purpose.
  void hand_over(size_t most_payload, bool accept_fds, OnFrame on_frame, OnClosed on_closed);
  void send(uint32_t type, const Bytes& payload, SharedFds fds = {});
  // The next `n` fds the peer sent, in its order; throws WireError if fewer were sent, and returns
  // none of them if this process had no room for some. An fd is here at the latest when the frame
  // is that it was sent with.
  std::vector<Fd> take_fds(size_t n);
  void close();
  // Sends what is queued, for at most `linger`, then closes. No callback is called any more.
  void close_after_flush(std::chrono::milliseconds linger);

  bool is_open() const { return static_cast<bool>(fd_); }
  int fd() const { return fd_.get(); }

 private:
  struct Outgoing {
    Bytes bytes;
    size_t sent = 0;
    SharedFds fds;
    size_t fds_sent = 0;
  };

  void handle(uint32_t events);
  bool receive();  // false: the connection has ended
  void keep_received_fds(const void* control_message);
  void deliver();
  void flush();
  void update_events();
  void end(const std::string& reason);

  Reactor& reactor_;
  Fd fd_;
  bool is_unix_ = false;
  bool accept_fds_ = false;
  bool closing_ = false;
  FrameParser parser_;
  OnFrame on_frame_;
  OnClosed on_closed_;
  std::deque<Outgoing> queue_;
  std::deque<Fd> received_fds_;
  bool fds_lost_ = false;
  std::optional<Reactor::Timer> retry_;
  std::optional<Reactor::Timer> linger_;
  uint32_t events_ = 0;
};

}  // namespace symm

#endif  // SYMM_CORE_CONNECTION_H_
