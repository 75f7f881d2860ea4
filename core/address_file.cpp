#include "core/address_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "core/error.h"
#include "core/messages.h"

namespace symm {
namespace {

constexpr int kProbeMs = 1000;

std::optional<std::string> read_small_file(const std::string& path, std::string* problem) {
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) {
    *problem = text(path, ": ", errno_text(errno));
    return std::nullopt;
  }
  // Longer than any address: what has more is something else.
  char buffer[SYMM_ADDRESS_SIZE + 2];
  size_t length = 0;
  while (length < sizeof buffer) {
    const ssize_t n = read(fd.get(), buffer + length, sizeof buffer - length);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      *problem = text(path, ": ", errno_text(errno));
      return std::nullopt;
    }
    if (n == 0) break;
    length += static_cast<size_t>(n);
  }
  return std::string(buffer, length);
}

// Whether something listens where the address says. A dead process's port may belong to another
// program by now; the token in the HELLO finds that out later.
bool is_alive(const Address& address) {
  const bool same_host = address.host_id == host_identity();
  for (const Endpoint& endpoint : address.endpoints) {
    // On this host the unix socket knows: its name is random and dies with its process.
    if (endpoint.is_unix() != same_host) continue;
    int error = 0;
    std::string detail;
    if (connect_once(endpoint, Deadline::after_ms(kProbeMs), &error, &detail)) return true;
  }
  return false;
}

[[noreturn]] void fail(const std::string& path, const char* call) {
  throw Error(SYMM_SYSTEM, text("address file ", path, ": ", call, ": ", errno_text(errno),
                                "; rank 0 needs a directory it can write to"));
}

}  // namespace

std::optional<Address> read_address_file(const std::string& path, std::string* problem) {
  auto content = read_small_file(path, problem);
  if (!content) return std::nullopt;
  if (!content->empty() && content->back() == '\n') content->pop_back();
  try {
    Address address = parse_address(*content, process_environment());
    if (address.kind == Address::Kind::kServed) return address;
  } catch (const Error&) {
    // Left by another program, or cut off; rank 0 will write over it.
  }
  *problem = text(path, " holds no address of symm");
  return std::nullopt;
}

std::shared_ptr<AddressFile> AddressFile::claim(const std::string& path,
                                                const std::function<Address()>& serve) {
  std::string problem;
  if (const auto found = read_address_file(path, &problem); found && is_alive(*found))
    return nullptr;
  const std::string content = format_served_address(serve()) + "\n";
  const std::string temporary = text(path, ".", random_hex(8));
  {
    const Fd fd(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!fd) fail(path, "open");
    if (write(fd.get(), content.data(), content.size()) != static_cast<ssize_t>(content.size())) {
      unlink(temporary.c_str());
      fail(path, "write");
    }
  }
  if (rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    unlink(temporary.c_str());
    errno = error;
    fail(path, "rename");
  }
  const std::shared_ptr<AddressFile> file(new AddressFile(path, content));
  add_exit_listener(file);
  return file;
}

AddressFile::~AddressFile() {
  if (generation_ == process_generation()) remove();
}

void AddressFile::remove() noexcept {
  std::string problem;
  if (read_small_file(path_, &problem) == content_) unlink(path_.c_str());
}

}  // namespace symm
