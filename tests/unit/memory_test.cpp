// Shared memory where the kernel is slow or interrupted.
#include "core/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>

namespace {

// What a signal does to kernels before 6.18: a call that takes longer than from one signal to the
// next fails, having done nothing. 0: no signals.
size_t most_between_signals = 0;
int interrupted = 0;
constexpr int kPatience = 10000;

}  // namespace

// In place of the C library's, for the library under test too.
extern "C" int fallocate(int fd, int mode, off_t offset, off_t length) {
  if (most_between_signals != 0 && static_cast<size_t>(length) > most_between_signals &&
      ++interrupted < kPatience) {
    errno = EINTR;
    return -1;
  }
  return static_cast<int>(syscall(SYS_fallocate, fd, mode, offset, length));
}

namespace symm {
namespace {

size_t committed_bytes(const Fd& fd) {
  struct stat status = {};
  fstat(fd.get(), &status);
  return static_cast<size_t>(status.st_blocks) * 512;
}

TEST(Commit, MakesExactlyTheRangeExist) {
  const auto fd = create_memfd("memory_test", size_t{32} << 20);
  commit(*fd, 0, 0);
  EXPECT_EQ(committed_bytes(*fd), 0u);
  commit(*fd, 4096, 8192);
  EXPECT_EQ(committed_bytes(*fd), 8192u);
  commit(*fd, size_t{8} << 20, (size_t{24} << 20));
  EXPECT_EQ(committed_bytes(*fd), 8192u + (size_t{24} << 20));
}

TEST(Commit, GetsOnBetweenSignalsHoweverOftenTheyCome) {
  for (const size_t between : {size_t{1} << 20, size_t{4096}}) {
    most_between_signals = between;
    interrupted = 0;
    const size_t bytes = size_t{16} << 20;
    const auto fd = create_memfd("memory_test", bytes);
    commit(*fd, 0, bytes);
    most_between_signals = 0;
    EXPECT_EQ(committed_bytes(*fd), bytes);
    EXPECT_GT(interrupted, 0);
    EXPECT_LT(interrupted, 100) << "began again and again";
  }
}

}  // namespace
}  // namespace symm
