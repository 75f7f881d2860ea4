#include "tests/support/hosts.h"

#include <unistd.h>

#include <cstdlib>
#include <random>
#include <stdexcept>

namespace symm_test {

int shell(const std::string& command) { return system((command + " >/dev/null 2>&1").c_str()); }

TwoHosts::TwoHosts() {
  const std::string id = std::to_string(getpid());
  const std::string l = "sl" + id, r = "sr" + id;
  if (getuid() != 0) lacking = "only root can make network name spaces";
  if (lacking.empty() && shell("command -v ip") != 0) lacking = "iproute2 is not installed";
  if (lacking.empty() && shell("ip netns add symm-l" + id) != 0) {
    lacking = "`ip netns add` is not allowed here";
  }
  if (!lacking.empty()) return;
  left = "symm-l" + id;
  right = "symm-r" + id;
  const std::string net = "10.99." + std::to_string(std::random_device()() % 250) + ".";
  left_address = net + "1";
  right_address = net + "2";
  const std::string commands[] = {
      "ip netns add " + right,
      "ip link add " + l + " netns " + left + " type veth peer name " + r + " netns " + right,
      "ip -n " + left + " addr add " + left_address + "/24 dev " + l,
      "ip -n " + right + " addr add " + right_address + "/24 dev " + r,
      "ip -n " + left + " link set lo up",
      "ip -n " + right + " link set lo up",
      "ip -n " + left + " link set " + l + " up",
      "ip -n " + right + " link set " + r + " up"};
  for (const std::string& command : commands) {
    if (shell(command) != 0) throw std::runtime_error("failed: " + command);
  }
  cut = "ip -n " + left + " link set " + l + " down";
}

TwoHosts::~TwoHosts() {
  // A name space goes with its last process and its name; so does the wire.
  if (!left.empty()) shell("ip netns del " + left);
  if (!right.empty()) shell("ip netns del " + right);
}

}  // namespace symm_test
