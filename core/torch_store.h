// A client of PyTorch's TCPStore, the table of keys and values that torchrun's agent or rank 0's
// torch.distributed keeps at MASTER_ADDR:MASTER_PORT. Ranks that find one there meet by an entry
// in it, as others do by a file.
#ifndef SYMM_CORE_TORCH_STORE_H_
#define SYMM_CORE_TORCH_STORE_H_

#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

#include "core/socket.h"

namespace symm {

// The store went away or says what no store says.
class StoreError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// One connection. Calls block until its deadline at most, and throw StoreError; after that the
// connection is of no use any more.
class TorchStore {
 public:
  // Null with *problem where nobody listens, or somebody who is no such store. Throws SYSTEM where
  // this process lacks descriptors or memory.
  static std::unique_ptr<TorchStore> connect(const Endpoint& endpoint, Deadline deadline,
                                             std::string* problem);

  // For the calls that follow.
  void set_deadline(Deadline deadline) { deadline_ = deadline; }
  const std::string& name() const { return name_; }

  bool has(const std::string& key);
  std::optional<std::string> get(const std::string& key);
  // Returns once the store has it.
  void set(const std::string& key, const std::string& value);
  void remove(const std::string& key);

 private:
  TorchStore(Fd fd, std::string name, Deadline deadline)
      : fd_(std::move(fd)), name_(std::move(name)), deadline_(deadline) {}
  void send(const std::string& request);
  void receive(void* to, size_t bytes);
  void wait_for(short events);

  const Fd fd_;
  const std::string name_;  // for messages
  Deadline deadline_;
};

// Rank 0's entry: there while this lives. Its end blocks for a short time at most.
class StoreEntry {
 public:
  // Null with *problem where the store cannot be had now. Throws SYSTEM.
  static std::shared_ptr<StoreEntry> put(const Endpoint& endpoint, const std::string& key,
                                         const std::string& value, Deadline deadline,
                                         std::string* problem);
  ~StoreEntry();
  // The same entry, whose end does not block: for what ends in the helper thread.
  static std::shared_ptr<void> ending_elsewhere(std::shared_ptr<StoreEntry> entry);
  StoreEntry(const StoreEntry&) = delete;
  StoreEntry& operator=(const StoreEntry&) = delete;

 private:
  StoreEntry(Endpoint endpoint, std::string key, std::string value)
      : endpoint_(std::move(endpoint)), key_(std::move(key)), value_(std::move(value)) {}
  const Endpoint endpoint_;
  const std::string key_;
  const std::string value_;
};

}  // namespace symm

#endif  // SYMM_CORE_TORCH_STORE_H_
