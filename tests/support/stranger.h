// What listens at a port and is neither a rank of symm nor a store.
#ifndef SYMM_TESTS_SUPPORT_STRANGER_H_
#define SYMM_TESTS_SUPPORT_STRANGER_H_

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/places.h"

namespace symm_test {

// Says `words` to each who comes (nothing, if it is empty) and hangs up or stays.
class Stranger {
 public:
  Stranger(std::string words, bool hangs_up)
      : listener_(listen_on(&port)), words_(std::move(words)), hangs_up_(hangs_up) {
    thread_ = std::thread([this] { serve(); });
  }
  ~Stranger() {
    ended_ = true;
    thread_.join();
    for (const int fd : guests_) close(fd);
    close(listener_);
  }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  int port = 0;

 private:
  void serve() {
    while (!ended_) {
      pollfd one{listener_, POLLIN, 0};
      if (poll(&one, 1, 20) <= 0) continue;
      const int fd = accept(listener_, nullptr, nullptr);
      if (fd < 0) continue;
      (void)!send(fd, words_.data(), words_.size(), MSG_NOSIGNAL);
      if (hangs_up_) {
        shutdown(fd, SHUT_WR);
      }
      guests_.push_back(fd);
    }
  }

  int listener_;
  std::string words_;
  bool hangs_up_;
  std::atomic<bool> ended_{false};
  std::vector<int> guests_;
  std::thread thread_;
};

}  // namespace symm_test

#endif  // SYMM_TESTS_SUPPORT_STRANGER_H_
