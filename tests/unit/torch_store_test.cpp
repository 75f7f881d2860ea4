// The client against servers that misbehave; tests/torch runs it against PyTorch's own.
#include "core/torch_store.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "core/error.h"

namespace symm {
namespace {

// Takes one connection after the other and lets `serve` have each.
class Server {
 public:
  explicit Server(std::function<void(int fd)> serve)
      : listener_(listen_at({"", "127.0.0.1", 0}, nullptr)),
        endpoint_{"", "127.0.0.1", local_endpoint(listener_.get()).port},
        thread_([this, serve = std::move(serve)] {
          for (;;) {
            timeval wait{0, 50000};
            fd_set set;
            FD_ZERO(&set);
            FD_SET(listener_.get(), &set);
            if (select(listener_.get() + 1, &set, nullptr, nullptr, &wait) > 0) {
              const Fd fd(accept(listener_.get(), nullptr, nullptr));
              timeval patience{5, 0};
              setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
              serve(fd.get());
            }
            if (stop_) return;
          }
        }) {}
  ~Server() {
    stop_ = true;
    thread_.join();
  }
  const Endpoint& endpoint() const { return endpoint_; }

 private:
  Fd listener_;
  Endpoint endpoint_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

std::string receive(int fd, size_t bytes) {
  std::string text(bytes, '\0');
  const ssize_t n = recv(fd, text.data(), bytes, MSG_WAITALL);
  text.resize(n < 0 ? 0 : static_cast<size_t>(n));
  return text;
}
void answer(int fd, const std::string& text) { send(fd, text.data(), text.size(), MSG_NOSIGNAL); }
std::string number(uint64_t value) { return {reinterpret_cast<const char*>(&value), sizeof value}; }

// What the client says first: VALIDATE with the magic number, and a CHECK of one key.
constexpr size_t kValidate = 1 + 4;
constexpr size_t check_size(size_t key) { return 1 + 8 + 8 + key; }
const std::string kReady(1, '\0'), kNotReady(1, '\1');

void greet(int fd) {
  EXPECT_EQ(receive(fd, kValidate), std::string("\0\xCE\xF7\x85\x3C", 5));
  EXPECT_EQ(receive(fd, check_size(4)), '\5' + number(1) + number(4) + "symm");
  answer(fd, kNotReady);
}

std::unique_ptr<TorchStore> connect(const Server& server, std::string* problem, int ms = 5000) {
  return TorchStore::connect(server.endpoint(), Deadline::after_ms(ms), problem);
}

TEST(TorchStore, SpeaksTheProtocolByteForByte) {
  const Server server([](int fd) {
    greet(fd);
    EXPECT_EQ(receive(fd, 1 + 8 + 3 + 8 + 5), '\1' + number(3) + "key" + number(5) + "value");
    EXPECT_EQ(receive(fd, check_size(3)), '\5' + number(1) + number(3) + "key");
    answer(fd, kReady);
    EXPECT_EQ(receive(fd, check_size(3)), '\5' + number(1) + number(3) + "key");
    answer(fd, kReady);
    EXPECT_EQ(receive(fd, 1 + 8 + 3), '\3' + number(3) + "key");
    answer(fd, number(5) + "value");
    EXPECT_EQ(receive(fd, 1 + 8 + 3), '\b' + number(3) + "key");
    answer(fd, number(1));
  });
  std::string problem;
  const auto store = connect(server, &problem);
  ASSERT_NE(store, nullptr) << problem;
  store->set("key", "value");
  EXPECT_EQ(store->get("key"), "value");
  store->remove("key");
}

TEST(TorchStore, WhatHasNoEntryIsAskedForByCheckAlone) {
  const Server server([](int fd) {
    greet(fd);
    receive(fd, check_size(3));
    answer(fd, kNotReady);
    // A real one would close the connection for a GET.
    EXPECT_EQ(receive(fd, 1), "");
  });
  std::string problem;
  const auto store = connect(server, &problem);
  ASSERT_NE(store, nullptr) << problem;
  EXPECT_EQ(store->get("key"), std::nullopt);
}

TEST(TorchStore, WhoeverAnswersOtherwiseIsNoStore) {
  const std::pair<std::function<void(int)>, const char*> strangers[] = {
      {[](int fd) { receive(fd, kValidate + check_size(4)); }, "closed the connection"},
      {[](int fd) {
         receive(fd, kValidate + check_size(4));
         answer(fd, "HTTP/1.1 400 Bad Request\r\n\r\n");
       },
       "answers as no store does"},
      {[](int fd) { receive(fd, 1000); }, "does not answer"},
  };
  for (const auto& [serve, expected] : strangers) {
    const Server server(serve);
    std::string problem;
    EXPECT_EQ(connect(server, &problem, 500), nullptr);
    EXPECT_NE(problem.find(expected), std::string::npos) << problem;
    EXPECT_NE(problem.find(server.endpoint().display()), std::string::npos) << problem;
  }
}

TEST(TorchStore, NobodyThereIsSaidWithTheAddressAndTheReason) {
  Endpoint nobody;
  {
    const Fd listener = listen_at({"", "127.0.0.1", 0}, nullptr);
    nobody = {"", "127.0.0.1", local_endpoint(listener.get()).port};
  }
  std::string problem;
  EXPECT_EQ(TorchStore::connect(nobody, Deadline::after_ms(2000), &problem), nullptr);
  EXPECT_NE(problem.find(nobody.display()), std::string::npos) << problem;
  EXPECT_NE(problem.find("refused"), std::string::npos) << problem;
}

// A length that a server makes up must not become an allocation.
TEST(TorchStore, AValueLongerThanAnyAddressIsRefused) {
  const Server server([](int fd) {
    greet(fd);
    receive(fd, check_size(3));
    answer(fd, kReady);
    receive(fd, 1 + 8 + 3);
    answer(fd, number(UINT64_MAX));
  });
  std::string problem;
  const auto store = connect(server, &problem);
  ASSERT_NE(store, nullptr) << problem;
  EXPECT_THROW(store->get("key"), StoreError);
}

TEST(TorchStore, OneThatStopsInTheMiddleIsFoundOutByTheDeadline) {
  const Server server([](int fd) {
    greet(fd);
    receive(fd, check_size(3));
    answer(fd, kReady);
    receive(fd, 1 + 8 + 3);
    answer(fd, number(100) + "half");
    receive(fd, 1);
  });
  std::string problem;
  const auto start = Clock::now();
  const auto store = connect(server, &problem, 500);
  ASSERT_NE(store, nullptr) << problem;
  EXPECT_THROW(store->get("key"), StoreError);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(4));
}

TEST(TorchStore, AnEntryThatIsNotTakenIsNoEntry) {
  const Server server([](int fd) {
    greet(fd);
    receive(fd, 1 + 8 + 3 + 8 + 5);
    receive(fd, check_size(3));
    answer(fd, kNotReady);
  });
  std::string problem;
  EXPECT_EQ(StoreEntry::put(server.endpoint(), "key", "value", Deadline::after_ms(2000), &problem),
            nullptr);
  EXPECT_NE(problem.find("did not take"), std::string::npos) << problem;
}

}  // namespace
}  // namespace symm
