// The file of file:///path: the address of the process that serves, and nothing else.
#ifndef SYMM_CORE_ADDRESS_FILE_H_
#define SYMM_CORE_ADDRESS_FILE_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/address.h"
#include "core/process.h"

namespace symm {

// Nothing where the file is not there or holds no address; *problem then says which.
std::optional<Address> read_address_file(const std::string& path, std::string* problem);

// Rank 0's file. It appears whole, by rename, readable by its owner alone, since the address holds
// the job's token; and it goes away with this object unless another process has replaced it.
class AddressFile : public ExitListener {
 public:
  // Null where a live process of this user already serves the path: then that one serves this
  // communicator too. Otherwise calls `serve` and writes what it returns over whatever a dead job
  // left. Throws SYSTEM.
  static std::shared_ptr<AddressFile> claim(const std::string& path,
                                            const std::function<Address()>& serve);
  ~AddressFile() override;
  void process_exits() noexcept override {
    if (generation_ == process_generation()) remove();
  }

 private:
  AddressFile(std::string path, std::string content)
      : path_(std::move(path)), content_(std::move(content)) {}
  void remove() noexcept;
  std::string path_;
  std::string content_;
  const uint64_t generation_ = process_generation();
};

}  // namespace symm

#endif  // SYMM_CORE_ADDRESS_FILE_H_
