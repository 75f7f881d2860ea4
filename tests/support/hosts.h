// Two hosts with a wire between them, which network name spaces stand for: made as root, and
// removed again.
#ifndef SYMM_TESTS_SUPPORT_HOSTS_H_
#define SYMM_TESTS_SUPPORT_HOSTS_H_

#include <string>

namespace symm_test {

// Of a shell command that says nothing.
int shell(const std::string& command);

class TwoHosts {
 public:
  TwoHosts();
  ~TwoHosts();
  TwoHosts(const TwoHosts&) = delete;
  TwoHosts& operator=(const TwoHosts&) = delete;

  std::string left, right;                  // names for `ip netns exec`
  std::string left_address, right_address;  // IPv4 numbers
  std::string cut;                          // a command that cuts the wire
  std::string lacking;                      // "", or why this machine cannot have them
};

}  // namespace symm_test

#endif  // SYMM_TESTS_SUPPORT_HOSTS_H_
