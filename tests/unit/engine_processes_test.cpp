// The engine among processes that share a memfd, each with a mapping of its own.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/cpu/arena.h"
#include "core/cpu/engine.h"
#include "tests/unit/engine_group.h"

namespace symm::cpu {
namespace {

class Memfd {
 public:
  explicit Memfd(size_t bytes) : fd_(memfd_create("engine_test", MFD_CLOEXEC)) {
    if (fd_ < 0 || ftruncate(fd_, static_cast<off_t>(bytes)) != 0)
      throw std::runtime_error("memfd");
  }
  ~Memfd() { close(fd_); }
  Memfd(const Memfd&) = delete;
  Memfd& operator=(const Memfd&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

// A rank as a process with a mapping of its own; `body` gives the exit status.
pid_t start_rank(const EngineOptions& options, int rank, int fd,
                 const std::function<int(Engine&, std::atomic<int32_t>&)>& body,
                 const std::function<Fault()>& describe = {}) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  int status = 3;
  try {
    EngineOptions own = options;
    own.rank = rank;
    const Mapping mapping(arena_bytes(options), fd);
    std::atomic<int32_t> local_fault{0};
    Engine engine(mapping.data(), own, local_fault, describe);
    status = body(engine, local_fault);
  } catch (const std::exception& error) {
    fprintf(stderr, "rank %d: %s\n", rank, error.what());
  }
  _exit(status);
}

int exit_status(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

TEST(EngineOfProcesses, ReducesAnyMixtureOfCallsInRankOrder) {
  for (const int size : {2, 3, 4, 8}) {
    const EngineOptions options = options_for(size);
    const Memfd arena(arena_bytes(options));
    const auto schedule = random_schedule(seed() + 11, size, size <= 4 ? 100 : 40, 1000000);
    std::vector<pid_t> pids;
    for (int rank = 0; rank < size; ++rank) {
      pids.push_back(
          start_rank(options, rank, arena.fd(), [&](Engine& engine, std::atomic<int32_t>&) {
            for (const Step& step : schedule) {
              const std::string problem = run_step(step, rank, engine);
              if (!problem.empty()) {
                fprintf(stderr, "%s\n", problem.c_str());
                return 1;
              }
            }
            engine.leave();
            return 0;
          }));
    }
    for (const pid_t pid : pids) EXPECT_EQ(exit_status(pid), 0);
  }
}

TEST(EngineOfProcesses, AKilledRankEndsItsPeersWaits) {
  std::mt19937_64 random(seed() + 12);
  for (const int size : {2, 3, 8}) {
    for (int round = 0; round < 5; ++round) {
      EngineOptions options = options_for(size);
      options.wait_timeout_ms = 30000;
      const Memfd arena(arena_bytes(options));
      int lifeline[2];
      ASSERT_EQ(pipe(lifeline), 0);
      const int victim = static_cast<int>(random() % static_cast<uint64_t>(size));
      const auto describe = [victim] {
        return Fault{SYMM_PEER, victim, text("rank ", victim, " died")};
      };
      std::vector<pid_t> pids;
      for (int rank = 0; rank < size; ++rank) {
        pids.push_back(start_rank(
            options, rank, arena.fd(),
            [&](Engine& engine, std::atomic<int32_t>& local_fault) {
              std::thread helper;
              if (rank != victim) {
                close(lifeline[1]);
                helper = std::thread([&] {
                  char byte;
                  while (::read(lifeline[0], &byte, 1) > 0) {
                  }
                  local_fault = SYMM_PEER;  // end of file: only the victim had the other end
                });
              }
              int status = 1;
              try {
                for (int i = 0;; ++i) make_call(all_reduce_of(i % 3 == 0 ? 4 : 40000), engine);
              } catch (const Error& error) {
                const bool right = error.status() == SYMM_PEER && error.rank() == victim &&
                                   error.what() == text("rank ", victim, " died");
                status = right ? 0 : 2;
                if (!right) fprintf(stderr, "rank %d: %s\n", rank, error.what());
              }
              helper.join();
              return status;
            },
            describe));
      }
      close(lifeline[1]);
      usleep(static_cast<useconds_t>(2000 + random() % 30000));
      kill(pids[victim], SIGKILL);
      const auto start = Clock::now();
      for (int rank = 0; rank < size; ++rank) {
        EXPECT_EQ(exit_status(pids[rank]), rank == victim ? 1000 + SIGKILL : 0);
      }
      EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
      close(lifeline[0]);
    }
  }
}

}  // namespace
}  // namespace symm::cpu
