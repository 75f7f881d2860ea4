// Ports, addresses and directories that nobody else uses.
#ifndef SYMM_TESTS_SUPPORT_PLACES_H_
#define SYMM_TESTS_SUPPORT_PLACES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace symm_test {

// A TCP port free on loopback, outside the range that the kernel gives to outgoing connections.
int free_port();
std::string local_address();  // "tcp://127.0.0.1:" of such a port

class Directory {
 public:
  Directory();
  ~Directory();
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::vector<std::string> files_in(const std::string& directory);
std::string read_file(const std::string& path);
void write_file(const std::string& path, const std::string& text);

// A blocking connection to loopback, -1 if refused; and a listener with the port it got.
int connect_to(int port);
int listen_on(int* port);

}  // namespace symm_test

#endif  // SYMM_TESTS_SUPPORT_PLACES_H_
