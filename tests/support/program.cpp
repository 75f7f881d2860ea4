#include "tests/support/program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

namespace symm_test {
namespace {

std::vector<char*> pointers_to(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& string : strings) result.push_back(string.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

Program::Program(std::vector<std::string> command, std::vector<std::string> environment,
                 int output) {
  for (const std::string& word : command) command_ += (command_.empty() ? "" : " ") + word;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
  std::vector<char*> argv = pointers_to(command);
  std::vector<char*> envp = pointers_to(environment);
  pid_ = fork();
  if (pid_ == 0) {
    setpgid(0, 0);
    dup2(output >= 0 ? output : ends[1], STDOUT_FILENO);
    execvpe(argv[0], argv.data(), envp.data());
    _exit(127);
  }
  close(ends[1]);
  output_ = ends[0];
  if (pid_ < 0) throw std::runtime_error("fork");
  setpgid(pid_, pid_);  // whichever of the two comes first
}

Program::~Program() {
  close(output_);
  if (pid_ < 0) return;
  kill(-pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

Ended Program::finish(double seconds) {
  Ended ended;
  char bytes[4096];
  for (;;) {
    const double left = seconds * kSlowdown - clock_.seconds();
    pollfd one{output_, POLLIN, 0};
    const int ready = left > 0 ? poll(&one, 1, static_cast<int>(left * 1000) + 1) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      ADD_FAILURE() << command_ << " did not end within " << seconds * kSlowdown
                    << " s; it said: " << ended.output;
      kill(-pid_, SIGKILL);
      break;
    }
    const ssize_t n = read(output_, bytes, sizeof bytes);
    if (n <= 0) break;
    ended.output.append(bytes, static_cast<size_t>(n));
  }
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  ended.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  ended.seconds = clock_.seconds();
  return ended;
}

std::vector<std::string> plain_environment(std::vector<std::string> chosen) {
  for (const char* name :
       {"PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "UBSAN_OPTIONS", "TSAN_OPTIONS"}) {
    const auto is_name = [&](const std::string& one) {
      return one.rfind(std::string(name) + "=", 0) == 0;
    };
    bool set = false;
    for (const std::string& one : chosen) set = set || is_name(one);
    const char* value = getenv(name);
    if (!set && value != nullptr) chosen.push_back(std::string(name) + "=" + value);
  }
  // A library that is preloaded comes before the sanitizer's own.
  const char* asan = getenv("ASAN_OPTIONS");
  chosen.push_back(std::string("ASAN_OPTIONS=verify_asan_link_order=0:") +
                   (asan == nullptr ? "" : asan));
  return chosen;
}

std::string built(const std::string& relative) {
  const auto path = std::filesystem::read_symlink("/proc/self/exe").parent_path() / relative;
  return std::filesystem::exists(path) ? path.lexically_normal().string() : "";
}

}  // namespace symm_test
