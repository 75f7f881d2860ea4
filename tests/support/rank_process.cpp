// The other side of ranks.cpp: a process that is one or several ranks.
#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <thread>

#include "tests/support/rank_arguments.h"

namespace symm_test {
namespace {

constexpr char kMark[] = "--symm-rank";
constexpr int kWords = 12;

// Bodies are told by their distance from here: the program executed is the same file.
intptr_t anchor() { return reinterpret_cast<intptr_t>(&is_rank_process); }

thread_local const Rank* current = nullptr;  // the rank of this thread, if it is one
const Rank* first_rank = nullptr;            // for failures on other threads

void send_message(const Rank& rank, char kind, const std::string& text) {
  if (rank.channel < 0) {
    printf("%c %s\n", kind, text.c_str());
    fflush(stdout);
    return;
  }
  std::string message = kind + text;
  if (message.size() > (64 << 10)) message.resize(64 << 10);
  (void)!send(rank.channel, message.data(), message.size(), MSG_NOSIGNAL);
}

class FailureForwarder : public testing::EmptyTestEventListener {
 public:
  bool failed = false;

 private:
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.passed() || result.skipped()) return;
    failed = true;
    std::ostringstream text;
    text << (result.file_name() != nullptr ? result.file_name() : "?") << ":"
         << result.line_number() << ": " << result.message();
    send_message(current != nullptr ? *current : *first_rank, kFailure, text.str());
  }
};

void enter_network(const std::string& name) {
  const int fd = open(("/run/netns/" + name).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) {
    perror(("network name space " + name).c_str());
    _exit(4);
  }
  close(fd);
}

void become_user(int uid) {
  const gid_t gid = static_cast<gid_t>(uid);
  if (setgroups(0, nullptr) != 0 || setgid(gid) != 0 || setuid(static_cast<uid_t>(uid)) != 0) {
    perror("becoming another user");
    _exit(4);
  }
  // A change of user closes /proc/self to the process itself; a process that this user had started
  // would not be in that state.
  prctl(PR_SET_DUMPABLE, 1);
}

void be_rank(const RankArguments& arguments, size_t index) {
  Rank rank;
  rank.rank = arguments.first + static_cast<int>(index);
  rank.size = arguments.size;
  rank.process = arguments.process;
  rank.address = arguments.address;
  rank.argument = arguments.argument;
  rank.channel = arguments.channels[index];
  current = &rank;
  try {
    arguments.body(rank);
  } catch (const std::exception& error) {
    ADD_FAILURE() << "exception: " << error.what();
  }
  send_message(rank, kDone, "");
  current = nullptr;
}

}  // namespace

std::vector<std::string> RankArguments::words() const {
  std::string fds;
  for (int fd : channels) fds += std::to_string(fd) + ",";
  return {"symm-rank",
          kMark,
          std::to_string(reinterpret_cast<intptr_t>(body) - anchor()),
          std::to_string(first),
          std::to_string(size),
          std::to_string(process),
          std::to_string(uid),
          std::to_string(channels.front() < 0 ? 0 : getpid()),
          network,
          address,
          argument,
          fds};
}

RankArguments RankArguments::parse(int, char** argv) {
  RankArguments result;
  result.body = reinterpret_cast<Body>(anchor() + atoll(argv[2]));
  result.first = atoi(argv[3]);
  result.size = atoi(argv[4]);
  result.process = atoi(argv[5]);
  result.uid = atoi(argv[6]);
  result.parent = atoi(argv[7]);
  result.network = argv[8];
  result.address = argv[9];
  result.argument = argv[10];
  std::istringstream fds(argv[11]);
  for (std::string fd; std::getline(fds, fd, ',');) result.channels.push_back(atoi(fd.c_str()));
  return result;
}

bool is_rank_process(int argc, char** argv) {
  return argc == kWords && strcmp(argv[1], kMark) == 0;
}

int rank_main(int argc, char** argv) {
  const RankArguments arguments = RankArguments::parse(argc, argv);
  if (!arguments.network.empty()) enter_network(arguments.network);
  if (arguments.uid != 0) become_user(arguments.uid);
  if (arguments.parent != 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // after the change of user, which clears it
    if (getppid() != arguments.parent) _exit(5);
  }
  for (int fd : arguments.channels) {
    if (fd >= 0) fcntl(fd, F_SETFD, FD_CLOEXEC);
  }

  int argument_count = 1;
  testing::InitGoogleTest(&argument_count, argv);
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  auto* forwarder = new FailureForwarder;  // gtest's from here on
  listeners.Append(forwarder);

  Rank first;
  first.rank = arguments.first;
  first.channel = arguments.channels.front();
  first_rank = &first;
  if (arguments.channels.size() == 1) {
    be_rank(arguments, 0);
  } else {
    std::vector<std::thread> ranks;
    for (size_t i = 0; i < arguments.channels.size(); ++i) {
      ranks.emplace_back([&arguments, i] { be_rank(arguments, i); });
    }
    for (std::thread& rank : ranks) rank.join();
  }
  // Failures came by the channel; only a launcher's rank has nothing but its status to tell by.
  return arguments.channels.front() < 0 && forwarder->failed ? 1 : 0;
}

void Rank::at(const std::string& where) const { send_message(*this, kAt, where); }
void Rank::give(const std::string& value) const { send_message(*this, kGive, value); }

std::string Rank::hear() const {
  char word[4096];
  const ssize_t length = recv(channel, word, sizeof word, 0);
  if (length <= 0) _exit(6);  // the test is gone
  return std::string(word, static_cast<size_t>(length));
}

}  // namespace symm_test
