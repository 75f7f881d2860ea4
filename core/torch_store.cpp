// The protocol, the same since PyTorch 2.1 and in both of its servers: a client says VALIDATE
// and a magic number once, then sends requests of one byte for the kind and the arguments. Numbers
// are in the host's order, a string is its length in 64 bits and its bytes. Keys of PyTorch's own
// clients begin with '/', so ours, which do not, are never theirs.
#include "core/torch_store.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"
#include "core/thread.h"

namespace symm {
namespace {

enum class Query : uint8_t { kValidate = 0, kSet = 1, kGet = 3, kCheck = 5, kDelete = 8 };
constexpr uint32_t kMagic = 0x3C85F7CE;
constexpr uint8_t kReady = 0, kNotReady = 1;
// Longer than any address.
constexpr uint64_t kMostValue = 4096;
constexpr int kRemoveMs = 1000;

class Request {
 public:
  explicit Request(Query query) { value(query); }
  template <class T>
  Request& value(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Request& string(const std::string& text) {
    value<uint64_t>(text.size());
    bytes_ += text;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

std::string check_of(const std::string& key) {
  return Request(Query::kCheck).value<uint64_t>(1).string(key).bytes();
}

}  // namespace

std::unique_ptr<TorchStore> TorchStore::connect(const Endpoint& endpoint, Deadline deadline,
                                                std::string* problem) {
  const std::string name = "the store at " + endpoint.display();
  int error = 0;
  std::string detail;
  Fd fd = connect_once(endpoint, deadline, &error, &detail);
  if (!fd) {
    *problem = text(name, ": ", detail.empty() ? errno_text(error) : detail);
    if (lacks_resources(error)) throw Error(SYMM_SYSTEM, "cannot connect to " + *problem);
    return nullptr;
  }
  std::unique_ptr<TorchStore> store(new TorchStore(std::move(fd), name, deadline));
  try {
    // An answer to a question makes it one: the greeting alone gets none.
    store->send(Request(Query::kValidate).value(kMagic).bytes());
    store->has("symm");
  } catch (const StoreError& e) {
    *problem = text(e.what(), "; is it PyTorch's, 2.1 or later?");
    return nullptr;
  }
  return store;
}

void TorchStore::wait_for(short events) {
  for (;;) {
    pollfd one{fd_.get(), events, 0};
    const int ready = poll(&one, 1, deadline_.left_ms());
    if (ready > 0) return;
    if (ready == 0) throw StoreError(name_ + " does not answer");
    if (errno != EINTR) throw StoreError(text(name_, ": poll: ", errno_text(errno)));
  }
}

void TorchStore::send(const std::string& request) {
  size_t sent = 0;
  while (sent < request.size()) {
    const ssize_t n = ::send(fd_.get(), request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
    if (n >= 0) {
      sent += static_cast<size_t>(n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      wait_for(POLLOUT);
    } else if (errno != EINTR) {
      throw StoreError(text(name_, ": ", errno_text(errno)));
    }
  }
}

void TorchStore::receive(void* to, size_t bytes) {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t n = recv(fd_.get(), at, bytes, 0);
    if (n > 0) {
      at += n;
      bytes -= static_cast<size_t>(n);
    } else if (n == 0) {
      throw StoreError(name_ + " closed the connection");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      wait_for(POLLIN);
    } else if (errno != EINTR) {
      throw StoreError(text(name_, ": ", errno_text(errno)));
    }
  }
}

bool TorchStore::has(const std::string& key) {
  send(check_of(key));
  uint8_t answer = 0;
  receive(&answer, sizeof answer);
  if (answer != kReady && answer != kNotReady) {
    throw StoreError(text(name_, " answers as no store does"));
  }
  return answer == kReady;
}

std::optional<std::string> TorchStore::get(const std::string& key) {
  // A server closes the connection of whoever asks for what it does not have.
  if (!has(key)) return std::nullopt;
  send(Request(Query::kGet).string(key).bytes());
  uint64_t size = 0;
  receive(&size, sizeof size);
  if (size > kMostValue)
    throw StoreError(text(name_, " has ", size, " bytes where an address is due"));
  std::string value(size, '\0');
  receive(value.data(), value.size());
  return value;
}

void TorchStore::set(const std::string& key, const std::string& value) {
  // It says nothing to this one, but requests are handled in turn.
  send(Request(Query::kSet).string(key).string(value).bytes());
  if (!has(key)) throw StoreError(text(name_, " did not take an entry"));
}

void TorchStore::remove(const std::string& key) {
  send(Request(Query::kDelete).string(key).bytes());
  int64_t removed = 0;
  receive(&removed, sizeof removed);
}

std::shared_ptr<StoreEntry> StoreEntry::put(const Endpoint& endpoint, const std::string& key,
                                            const std::string& value, Deadline deadline,
                                            std::string* problem) {
  const auto store = TorchStore::connect(endpoint, deadline, problem);
  if (!store) return nullptr;
  try {
    store->set(key, value);
  } catch (const StoreError& e) {
    *problem = e.what();
    return nullptr;
  }
  return std::shared_ptr<StoreEntry>(new StoreEntry(endpoint, key, value));
}

std::shared_ptr<void> StoreEntry::ending_elsewhere(std::shared_ptr<StoreEntry> entry) {
  return std::shared_ptr<void>(nullptr, [entry = std::move(entry)](void*) mutable {
    // Without a thread it ends here.
    start_thread("symm-store", [last = std::move(entry)] {});
  });
}

StoreEntry::~StoreEntry() {
  try {
    std::string problem;
    const auto store = TorchStore::connect(endpoint_, Deadline::after_ms(kRemoveMs), &problem);
    // Not another's: rank 0 of a restarted job may have put its own meanwhile.
    if (store && store->get(key_) == value_) store->remove(key_);
  } catch (const std::exception&) {
    // The store has gone, and the entry with it; or it stays, and leads nobody anywhere.
  }
}

}  // namespace symm
