#include "tests/support/footprint.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "tests/support/pace.h"

namespace symm_test {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> open_files() {
  std::vector<std::string> result;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    const std::string target = fs::read_symlink(entry.path(), error).string();
    // The descriptor that this very listing uses.
    if (!error && target.find("/fd") == std::string::npos) result.push_back(target);
  }
  return result;
}

std::vector<std::string> shared_mappings() {
  std::vector<std::string> result;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/memfd:") != std::string::npos || line.find("/dev/shm") != std::string::npos) {
      result.push_back(line);
    }
  }
  return result;
}

std::vector<std::string> named_unix_sockets(const std::vector<std::string>& fds) {
  const std::set<std::string> mine(fds.begin(), fds.end());
  std::vector<std::string> result;
  std::ifstream sockets("/proc/net/unix");
  std::string line;
  std::getline(sockets, line);
  while (std::getline(sockets, line)) {
    std::istringstream words(line);
    std::string word, inode, name;
    for (int column = 0; column < 6; ++column) words >> word;
    words >> inode >> name;
    if (!name.empty() && mine.count("socket:[" + inode + "]") != 0) result.push_back(name);
  }
  return result;
}

int count_entries(const char* directory) {
  return static_cast<int>(std::distance(fs::directory_iterator(directory), {}));
}

int children_of_this_process() {
  int count = 0;
  for (const auto& task : fs::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "children");
    for (std::string pid; file >> pid;) ++count;
  }
  return count;
}

void compare(std::ostringstream& out, const char* what, const std::vector<std::string>& before,
             const std::vector<std::string>& now) {
  if (now.size() <= before.size()) return;
  out << "\n  " << now.size() << " " << what << ", before " << before.size() << ":";
  std::multiset<std::string> known(before.begin(), before.end());
  size_t shown = 0;
  for (const std::string& entry : now) {
    const auto found = known.find(entry);
    if (found != known.end()) {
      known.erase(found);
    } else if (++shown <= 10) {
      out << "\n    " << entry;
    }
  }
}

std::string growth(const Footprint& before, const Footprint& now) {
  std::ostringstream out;
  compare(out, "descriptors", before.fds, now.fds);
  compare(out, "shared mappings", before.mappings, now.mappings);
  compare(out, "named unix sockets", before.unix_sockets, now.unix_sockets);
  compare(out, "files in /dev/shm", before.shm, now.shm);
  if (now.threads > before.threads) {
    out << "\n  " << now.threads << " threads, before " << before.threads;
  }
  if (now.children > before.children) {
    out << "\n  " << now.children << " child processes, before " << before.children;
  }
  return out.str();
}

}  // namespace

Footprint footprint() {
  Footprint result;
  result.fds = open_files();
  result.mappings = shared_mappings();
  result.unix_sockets = named_unix_sockets(result.fds);
  if (fs::exists("/dev/shm")) {
    for (const auto& entry : fs::directory_iterator("/dev/shm")) {
      const std::string name = entry.path().filename().string();
      if (name.find("symm") != std::string::npos) result.shm.push_back(name);
    }
  }
  result.threads = count_entries("/proc/self/task");
  result.children = children_of_this_process();
  return result;
}

testing::AssertionResult returns_to(const Footprint& before, double seconds) {
  const Stopwatch clock;
  while (true) {
    const std::string more = growth(before, footprint());
    if (more.empty()) return testing::AssertionSuccess();
    if (clock.seconds() > seconds * kSlowdown) {
      return testing::AssertionFailure() << "left behind:" << more;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

size_t open_fds() { return open_files().size(); }

size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  size_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace symm_test
