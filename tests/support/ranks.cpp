#include "tests/support/ranks.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "tests/support/rank_arguments.h"

extern char** environ;

namespace symm_test {
namespace {

constexpr size_t kLongestMessage = 64 << 10;

std::vector<std::string> environment_with(const std::vector<std::string>& changes) {
  std::vector<std::string> result;
  const auto name_of = [](const std::string& text) { return text.substr(0, text.find('=')); };
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const bool changed =
        std::any_of(changes.begin(), changes.end(),
                    [&](const std::string& change) { return name_of(change) == name_of(*entry); });
    if (!changed) result.emplace_back(*entry);
  }
  for (const std::string& change : changes) {
    if (change.find('=') != std::string::npos) result.push_back(change);
  }
  return result;
}

std::vector<char*> pointers_to(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& string : strings) result.push_back(string.data());
  result.push_back(nullptr);
  return result;
}

std::string make_directory(int uid) {
  std::string name = (std::filesystem::temp_directory_path() / "symm-test-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp: " + name);
  if (uid != 0 && chown(name.c_str(), static_cast<uid_t>(uid), static_cast<gid_t>(uid)) != 0) {
    throw std::runtime_error("chown: " + name);
  }
  return name;
}

std::string describe_exit(int status) {
  std::ostringstream out;
  if (WIFSIGNALED(status)) {
    out << "was ended by signal " << WTERMSIG(status) << " (" << strsignal(WTERMSIG(status)) << ")";
  } else {
    out << "exited with status " << WEXITSTATUS(status);
  }
  return out.str();
}

}  // namespace

struct Ranks::Child {
  pid_t pid = -1;
  int pidfd = -1;
  bool running = false;
  bool killed = false;  // by the test: its end is no failure
  int exit_status = 0;
};

struct Ranks::Seat {
  int channel = -1;
  std::vector<std::string> places;  // everything it said it was at
  std::vector<std::string> given;
  bool done = false;
};

Ranks::Ranks(Layout layout, Body body, RunOptions options)
    : layout_(layout), options_(std::move(options)) {
  if (options_.size == 0) options_.size = layout_.ranks();
  directory_ = make_directory(options_.uid);
  if (options_.address.empty()) options_.address = "file://" + directory_ + "/meeting";
  children_.resize(static_cast<size_t>(layout_.processes));
  seats_.resize(static_cast<size_t>(layout_.ranks()));
  for (int process = 0; process < layout_.processes; ++process) start(process, body);
}

Ranks::~Ranks() {
  for (Child& child : children_) {
    if (child.pid <= 0) continue;
    kill(-child.pid, SIGKILL);  // its whole group: forked children of ranks too
    if (child.running) waitpid(child.pid, nullptr, 0);
    if (child.pidfd >= 0) close(child.pidfd);
  }
  for (Seat& seat : seats_) {
    if (seat.channel >= 0) close(seat.channel);
  }
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

void Ranks::start(int process, Body body) {
  RankArguments arguments;
  arguments.body = body;
  arguments.first = process * layout_.threads;
  arguments.size = options_.size;
  arguments.process = process;
  arguments.uid = options_.uid;
  arguments.network = options_.network ? options_.network(process) : "";
  arguments.address = options_.address;
  arguments.argument = options_.argument;

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  std::vector<int> theirs;
  for (int thread = 0; thread < layout_.threads; ++thread) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
      throw std::runtime_error("socketpair");
    }
    seats_[static_cast<size_t>(arguments.first + thread)].channel = pair[0];
    theirs.push_back(pair[1]);
    posix_spawn_file_actions_adddup2(&actions, pair[1], pair[1]);  // clears CLOEXEC
  }
  arguments.channels = theirs;

  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);

  std::vector<std::string> words = arguments.words();
  std::vector<std::string> variables = environment_with(
      options_.environment ? options_.environment(process) : std::vector<std::string>{});
  Child& child = children_[static_cast<size_t>(process)];
  const int error = posix_spawn(&child.pid, "/proc/self/exe", &actions, &attributes,
                                pointers_to(words).data(), pointers_to(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  for (int fd : theirs) close(fd);
  if (error != 0) throw std::runtime_error(std::string("posix_spawn: ") + strerror(error));
  child.running = true;
  child.pidfd = static_cast<int>(syscall(SYS_pidfd_open, child.pid, 0));
}

pid_t Ranks::pid(int rank) const {
  return children_[static_cast<size_t>(rank / layout_.threads)].pid;
}

void Ranks::tell(int rank, const std::string& word) {
  // A rank that is gone already cannot be told; finish() says what became of it.
  (void)!send(seats_[static_cast<size_t>(rank)].channel, word.data(), word.size(), MSG_NOSIGNAL);
}

void Ranks::tell_all(const std::string& word) {
  for (int rank = 0; rank < layout_.ranks(); ++rank) tell(rank, word);
}

void Ranks::signal(int rank, int number) {
  Child& child = children_[static_cast<size_t>(rank / layout_.threads)];
  if (number == SIGKILL) child.killed = true;
  kill(child.pid, number);
}

void Ranks::read_channel(int rank) {
  Seat& seat = seats_[static_cast<size_t>(rank)];
  std::string message(kLongestMessage, '\0');
  while (seat.channel >= 0) {
    const ssize_t length = recv(seat.channel, message.data(), message.size(), MSG_DONTWAIT);
    if (length < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (length <= 0) {
      close(seat.channel);
      seat.channel = -1;
      return;
    }
    const std::string text = message.substr(1, static_cast<size_t>(length) - 1);
    switch (message[0]) {
      case kAt:
        seat.places.push_back(text);
        break;
      case kGive:
        seat.given.push_back(text);
        break;
      case kDone:
        seat.done = true;
        break;
      default:
        ADD_FAILURE() << "rank " << rank << ": " << text;
    }
  }
}

void Ranks::reap(Child* child, bool wait) {
  if (!child->running) return;
  if (waitpid(child->pid, &child->exit_status, wait ? 0 : WNOHANG) == child->pid) {
    child->running = false;
  }
}

void Ranks::pump(int timeout_ms) {
  std::vector<pollfd> polled;
  for (const Seat& seat : seats_) polled.push_back({seat.channel, POLLIN, 0});
  for (const Child& child : children_) {
    polled.push_back({child.running ? child.pidfd : -1, POLLIN, 0});
  }
  poll(polled.data(), polled.size(), timeout_ms);
  // First the ends, then the messages: what a rank said before it ended is then never missed.
  for (Child& child : children_) reap(&child, false);
  for (int rank = 0; rank < layout_.ranks(); ++rank) read_channel(rank);
}

std::string Ranks::where_everybody_is() const {
  std::ostringstream out;
  for (int rank = 0; rank < layout_.ranks(); ++rank) {
    const Seat& seat = seats_[static_cast<size_t>(rank)];
    const Child& child = children_[static_cast<size_t>(rank / layout_.threads)];
    out << "\n  rank " << rank << " (pid " << child.pid
        << "): " << (seat.done ? "returned, process " : "")
        << (child.running ? "running" : describe_exit(child.exit_status)) << ", last at \""
        << (seat.places.empty() ? "its start" : seat.places.back()) << "\"";
  }
  return out.str();
}

bool Ranks::until(const std::function<bool()>& done, const std::string& what) {
  while (!done()) {
    if (clock_.seconds() > options_.seconds * kSlowdown) {
      ADD_FAILURE() << "after " << clock_.seconds() << " s still waiting for " << what
                    << where_everybody_is();
      for (Child& child : children_) {
        if (!child.running) continue;
        kill(-child.pid, SIGKILL);
        child.killed = true;
        reap(&child, true);
      }
      return false;
    }
    pump(100);
  }
  return true;
}

bool Ranks::wait_for(int rank, const std::string& where) {
  const auto said = [&] {
    const auto& places = seats_[static_cast<size_t>(rank)].places;
    return std::find(places.begin(), places.end(), where) != places.end();
  };
  const Child& child = children_[static_cast<size_t>(rank / layout_.threads)];
  until([&] { return said() || !child.running; },
        "rank " + std::to_string(rank) + " to be at \"" + where + "\"");
  if (said()) return true;
  ADD_FAILURE() << "rank " << rank << " never was at \"" << where << "\"" << where_everybody_is();
  return false;
}

bool Ranks::wait_for_all(const std::string& where) {
  bool all = true;
  for (int rank = 0; rank < layout_.ranks(); ++rank) all = wait_for(rank, where) && all;
  return all;
}

bool Ranks::finish(int rank) {
  const size_t process = static_cast<size_t>(rank / layout_.threads);
  Child& child = children_[process];
  if (child.killed) {
    return until([&] { return !child.running; }, "rank " + std::to_string(rank) + " to die");
  }
  if (!until([&] { return !child.running; }, "rank " + std::to_string(rank) + " to end")) {
    return false;
  }
  if (WIFEXITED(child.exit_status) && WEXITSTATUS(child.exit_status) == 0) return true;
  ADD_FAILURE() << "the process of rank " << rank << " " << describe_exit(child.exit_status)
                << where_everybody_is();
  return false;
}

bool Ranks::finish() {
  bool good = true;
  for (int process = 0; process < layout_.processes; ++process) {
    good = finish(process * layout_.threads) && good;
  }
  return good;
}

const std::vector<std::string>& Ranks::given(int rank) const {
  return seats_[static_cast<size_t>(rank)].given;
}

std::string Ranks::given(int rank, size_t index) const {
  const std::vector<std::string>& values = given(rank);
  if (index < values.size()) return values[index];
  ADD_FAILURE() << "rank " << rank << " gave " << values.size() << " values, not " << index + 1;
  return "";
}

std::vector<std::vector<std::string>> run(Layout layout, Body body, RunOptions options) {
  Ranks ranks(layout, body, std::move(options));
  ranks.finish();
  std::vector<std::vector<std::string>> result;
  for (int rank = 0; rank < layout.ranks(); ++rank) result.push_back(ranks.given(rank));
  return result;
}

std::string command_line(Body body, int rank, int size, const std::string& address,
                         const std::string& argument) {
  RankArguments arguments;
  arguments.body = body;
  arguments.first = rank;
  arguments.size = size;
  arguments.address = address;
  arguments.argument = argument;
  arguments.channels = {-1};
  std::string line = "'" + std::filesystem::read_symlink("/proc/self/exe").string() + "'";
  const std::vector<std::string> words = arguments.words();
  for (size_t i = 1; i < words.size(); ++i) line += " '" + words[i] + "'";
  return line;
}

}  // namespace symm_test
