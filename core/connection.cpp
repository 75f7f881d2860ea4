#include "core/connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "core/error.h"

namespace symm {
namespace {

// The kernel's SCM_MAX_FD.
constexpr size_t kMostFdsAMessage = 253;
// More than any step of the protocol has in flight.
constexpr size_t kMostWaitingFds = 4096;
constexpr size_t kReadSize = 64 * 1024;

}  // namespace

Connection::Connection(Reactor& reactor, Fd fd, size_t most_payload)
    : reactor_(reactor), fd_(std::move(fd)), parser_(most_payload) {
  int domain = 0;
  socklen_t length = sizeof domain;
  getsockopt(fd_.get(), SOL_SOCKET, SO_DOMAIN, &domain, &length);
  is_unix_ = domain == AF_UNIX;
}

Connection::~Connection() { reactor_.add_unsent(-static_cast<int64_t>(queue_.size())); }

void Connection::start(OnFrame on_frame, OnClosed on_closed) {
  on_frame_ = std::move(on_frame);
  on_closed_ = std::move(on_closed);
  events_ = EPOLLIN;
  reactor_.watch(fd_.get(), events_,
                 [self = shared_from_this()](uint32_t events) { self->handle(events); });
}

void Connection::hand_over(size_t most_payload, bool accept_fds, OnFrame on_frame,
                           OnClosed on_closed) {
  parser_.set_limit(most_payload);
  accept_fds_ = accept_fds && is_unix_;
  on_frame_ = std::move(on_frame);
  on_closed_ = std::move(on_closed);
}

void Connection::handle(uint32_t events) {
  const auto self = shared_from_this();
  if ((events & EPOLLOUT) != 0 && is_open()) flush();
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 && is_open()) {
    if (closing_) {
      // Only the peer's disappearance matters now; its bytes do not.
      if ((events & (EPOLLHUP | EPOLLERR)) != 0)
        end("");
      else {
        char discarded[4096];
        const ssize_t n = recv(fd_.get(), discarded, sizeof discarded, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) end("");
      }
      return;
    }
    receive();
  }
}

bool Connection::receive() {
  // A bounded number of reads a turn, so that one busy peer cannot starve the others.
  for (int turn = 0; turn < 16 && is_open() && !closing_; ++turn) {
    std::byte buffer[kReadSize];
    alignas(cmsghdr) char control[CMSG_SPACE(kMostFdsAMessage * sizeof(int))];
    iovec part{buffer, sizeof buffer};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (accept_fds_) {
      message.msg_control = control;
      message.msg_controllen = sizeof control;
    }
    const ssize_t n = recvmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) return true;
      end(errno_text(errno));
      return false;
    }
    if (accept_fds_) {
      keep_received_fds(&message);
      if ((message.msg_flags & MSG_CTRUNC) != 0) fds_lost_ = true;
      if (received_fds_.size() > kMostWaitingFds) {
        end("the peer sent too many file descriptors");
        return false;
      }
    }
    if (n == 0) {
      end("end of file");
      return false;
    }
    try {
      parser_.feed(std::span(buffer, static_cast<size_t>(n)));
      deliver();
    } catch (const WireError& e) {
      end(text("what came is not symm's protocol: ", e.what()));
      return false;
    }
  }
  return true;
}

void Connection::keep_received_fds(const void* control_message) {
  // CMSG_NXTHDR wants a mutable header but only reads it.
  auto* message = const_cast<msghdr*>(static_cast<const msghdr*>(control_message));
  for (cmsghdr* c = CMSG_FIRSTHDR(message); c != nullptr; c = CMSG_NXTHDR(message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
      received_fds_.emplace_back(fd);
      if (!received_fds_.back()) fds_lost_ = true;  // no room above the standard streams
    }
  }
}

void Connection::deliver() {
  Frame frame;
  while (is_open() && !closing_ && parser_.next(&frame)) {
    // A copy: the callback may replace itself by hand_over().
    const OnFrame on_frame = on_frame_;
    on_frame(std::move(frame));
  }
}

void Connection::send(uint32_t type, const Bytes& payload, SharedFds fds) {
  if (!is_open() || closing_) return;
  queue_.push_back({encode_frame(type, payload), 0, std::move(fds), 0});
  reactor_.add_unsent(1);
  if (queue_.size() == 1) flush();
}

void Connection::flush() {
  while (!queue_.empty()) {
    Outgoing& out = queue_.front();
    iovec part{out.bytes.data() + out.sent, out.bytes.size() - out.sent};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(kMostFdsAMessage * sizeof(int))];
    const size_t fds = std::min(out.fds.size() - out.fds_sent, kMostFdsAMessage);
    if (fds > 0) {
      // Fds beyond one message's share ride on single bytes of the header, before the rest of it.
      if (out.fds.size() - out.fds_sent > fds) part.iov_len = 1;
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(fds * sizeof(int));
      cmsghdr* c = CMSG_FIRSTHDR(&message);
      c->cmsg_level = SOL_SOCKET;
      c->cmsg_type = SCM_RIGHTS;
      c->cmsg_len = CMSG_LEN(fds * sizeof(int));
      for (size_t i = 0; i < fds; ++i) {
        const int fd = out.fds[out.fds_sent + i]->get();
        std::memcpy(CMSG_DATA(c) + i * sizeof(int), &fd, sizeof fd);
      }
    }
    const ssize_t n = sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) break;
      if (errno == ETOOMANYREFS) {
        // The kernel's bound on fds in flight a user; they leave it as receivers take them.
        if (!retry_) {
          retry_ =
              reactor_.at(Clock::now() + std::chrono::milliseconds(1), [weak = weak_from_this()] {
                if (const auto self = weak.lock()) {
                  self->retry_.reset();
                  if (self->is_open()) self->flush();
                }
              });
        }
        return;
      }
      // The reader finds out why at its end of the socket; queued frames are lost with it.
      reactor_.add_unsent(-static_cast<int64_t>(queue_.size()));
      queue_.clear();
      break;
    }
    out.sent += static_cast<size_t>(n);
    out.fds_sent += fds;
    if (out.sent < out.bytes.size()) continue;
    queue_.pop_front();
    reactor_.add_unsent(-1);
  }
  if (queue_.empty() && closing_) {
    end("");
    return;
  }
  update_events();
}

void Connection::update_events() {
  const uint32_t wanted = EPOLLIN | (queue_.empty() ? 0u : static_cast<uint32_t>(EPOLLOUT));
  if (!is_open() || wanted == events_) return;
  events_ = wanted;
  reactor_.rewatch(fd_.get(), wanted);
}

std::vector<Fd> Connection::take_fds(size_t n) {
  if (fds_lost_ && n > 0) {
    // Which of them came is not known.
    fds_lost_ = false;
    received_fds_.clear();
    return {};
  }
  if (received_fds_.size() < n) throw WireError("a frame lacks its file descriptors");
  std::vector<Fd> fds;
  for (size_t i = 0; i < n; ++i) {
    fds.push_back(std::move(received_fds_.front()));
    received_fds_.pop_front();
  }
  return fds;
}

void Connection::close() {
  on_frame_ = nullptr;
  on_closed_ = nullptr;
  end("");
}

void Connection::close_after_flush(std::chrono::milliseconds linger) {
  if (!is_open()) return;
  on_frame_ = nullptr;
  on_closed_ = nullptr;
  closing_ = true;
  if (queue_.empty()) {
    end("");
    return;
  }
  linger_ = reactor_.at(Clock::now() + linger, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->end("");
  });
}

void Connection::end(const std::string& reason) {
  if (!is_open()) return;
  const auto self = shared_from_this();
  if (retry_) reactor_.cancel(*retry_);
  if (linger_) reactor_.cancel(*linger_);
  reactor_.unwatch(fd_.get());
  fd_.reset();
  reactor_.add_unsent(-static_cast<int64_t>(queue_.size()));
  queue_.clear();
  received_fds_.clear();
  const OnClosed on_closed = std::move(on_closed_);
  on_frame_ = nullptr;
  on_closed_ = nullptr;
  if (on_closed) on_closed(reason);
}

}  // namespace symm
