// Windows over memory of the caller's: every kind that can be shared, as root and as another user.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "capi/symm.h"
#include "tests/support/calls.h"
#include "tests/support/footprint.h"

namespace symm_test {
namespace {

constexpr size_t kBytes = 64 << 10;
constexpr int kNobody = 65534;

void barrier(symm_comm* comm) { EXPECT_TRUE(ok(symm_comm_barrier(comm, nullptr))); }

// A memfd and its shared mapping from `offset` on.
class Shared {
 public:
  explicit Shared(size_t bytes, off_t offset = 0)
      : bytes_(bytes), fd_(memfd_create("caller", MFD_CLOEXEC)) {
    EXPECT_EQ(ftruncate(fd_, offset + static_cast<off_t>(bytes)), 0);
    start_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, offset);
    EXPECT_NE(start_, MAP_FAILED);
  }
  ~Shared() {
    munmap(start_, bytes_);
    close_fd();
  }
  void close_fd() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  int fd() const { return fd_; }
  char* start() const { return static_cast<char*>(start_); }

 private:
  size_t bytes_;
  int fd_;
  void* start_;
};

Window register_memory(symm_comm* comm, void* pointer, size_t bytes,
                       const symm_window_options* options = nullptr) {
  symm_window* window = nullptr;
  EXPECT_TRUE(ok(symm_window_register(comm, pointer, bytes, options, &window)));
  return Window(window);
}

// The window over `memory` is that memory on every rank, and an all-reduce of it is right.
void works_over(const Rank& rank, symm_comm* comm, symm_window* window, char* memory) {
  ASSERT_NE(window, nullptr);
  auto* words = reinterpret_cast<int32_t*>(memory);
  words[0] = rank.rank + 1;
  words[kBytes / 8 - 1] = 100 * (rank.rank + 1);
  barrier(comm);
  for (int peer = 0; peer < rank.size; ++peer) {
    const auto* theirs = data_as<int32_t>(window, peer);
    EXPECT_EQ(theirs[0], peer + 1);
    EXPECT_EQ(theirs[kBytes / 8 - 1], 100 * (peer + 1));
  }
  barrier(comm);
  // Stores through the window reach the memory itself.
  data_as<int32_t>(window, (rank.rank + 1) % rank.size)[1] = 42 + rank.rank;
  barrier(comm);
  EXPECT_EQ(words[1], 42 + (rank.rank + rank.size - 1) % rank.size);
  std::vector<int32_t> sum(kBytes / 8);
  EXPECT_TRUE(
      ok(symm_window_all_reduce(window, 0, sum.data(), sum.size(), SYMM_INT32, SYMM_SUM, nullptr)));
  const int total = rank.size * (rank.size + 1) / 2;
  EXPECT_EQ(sum[0], total);
  EXPECT_EQ(sum.back(), 100 * total);
}

void the_interior_of_a_window(Rank& rank) {
  const Comm comm = create(rank);
  ASSERT_NE(comm, nullptr);
  Window home = alloc(comm.get(), 3 * kBytes);
  // Another place on every rank.
  char* memory = data_as<char>(home.get(), rank.rank) + 64 * static_cast<size_t>(rank.rank + 1);
  const Window window = register_memory(comm.get(), memory, kBytes);
  works_over(rank, comm.get(), window.get(), memory);
}

void a_memfd_that_is_named(Rank& rank) {
  const Comm comm = create(rank);
  ASSERT_NE(comm, nullptr);
  const long page = sysconf(_SC_PAGESIZE);
  Shared shared(2 * kBytes, page);  // mapped from its second page on
  char* memory = shared.start() + 640;
  symm_window_options options = window_options();
  options.flags = SYMM_WINDOW_FD;
  options.fd = shared.fd();
  options.fd_offset = static_cast<size_t>(page) + 640;
  const Window window = register_memory(comm.get(), memory, kBytes, &options);
  shared.close_fd();  // the window has its own
  works_over(rank, comm.get(), window.get(), memory);
}

void a_memfd_that_is_found(Rank& rank) {
  const Comm comm = create(rank);
  ASSERT_NE(comm, nullptr);
  const Shared decoy(kBytes);
  const Shared shared(2 * kBytes, 8192);
  char* memory = shared.start() + 320;
  const Window window = register_memory(comm.get(), memory, kBytes);
  works_over(rank, comm.get(), window.get(), memory);
}

void memory_that_cannot_be_shared(Rank& rank) {
  const Comm comm = create(rank);
  ASSERT_NE(comm, nullptr);
  std::vector<char> heap(kBytes);
  Shared closed(kBytes);
  closed.close_fd();  // mapped, but nobody holds a descriptor
  void* anonymous =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  const Shared copied(kBytes);
  void* copy = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, copied.fd(), 0);
  for (void* memory :
       {static_cast<void*>(heap.data()), static_cast<void*>(closed.start()), anonymous, copy}) {
    symm_window* window = nullptr;
    const symm_status status = symm_window_register(comm.get(), memory, kBytes, nullptr, &window);
    // Root may reach some of it another way; then it must be that memory.
    if (status == SYMM_OK) {
      works_over(rank, comm.get(), window, static_cast<char*>(memory));
    } else {
      EXPECT_EQ(status, SYMM_UNSUPPORTED);
      EXPECT_TRUE(
          mentions_all(symm_last_error(), {"symm_window_register", "memfd", "symm_window_alloc"}));
    }
    EXPECT_TRUE(memory != heap.data() || status == SYMM_UNSUPPORTED);
    EXPECT_TRUE(memory != copy || status == SYMM_UNSUPPORTED) << "a private copy is not the file";
    symm_window_free(window);
    EXPECT_TRUE(adds_up(comm.get()));
  }
  munmap(anonymous, kBytes);
  munmap(copy, kBytes);
}

class RegisterAs : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (GetParam() != 0 && getuid() != 0) GTEST_SKIP() << "only root can become another user";
  }
  void expect(Layout layout, Body body) {
    RunOptions options;
    options.uid = GetParam();
    run(layout, body, options);
  }
};

TEST_P(RegisterAs, TheInteriorOfAWindowMayDifferBetweenRanks) {
  expect(processes(3), the_interior_of_a_window);
  expect(mixed(2, 2), the_interior_of_a_window);
}

TEST_P(RegisterAs, AMemfdThatTheOptionsNameIsMappedAtItsOffset) {
  expect(processes(3), a_memfd_that_is_named);
  expect(mixed(2, 2), a_memfd_that_is_named);
}

TEST_P(RegisterAs, AMemfdThatIsMappedIsFoundAmongTheDescriptors) {
  expect(processes(3), a_memfd_that_is_found);
  expect(threads(3), a_memfd_that_is_found);
}

TEST_P(RegisterAs, MemoryThatCannotBeSharedIsRefusedWithTheRemedy) {
  expect(processes(2), memory_that_cannot_be_shared);
}

INSTANTIATE_TEST_SUITE_P(Users, RegisterAs, testing::Values(0, kNobody),
                         [](const auto& test) { return test.param == 0 ? "root" : "nobody"; });

TEST(Register, ADescriptorWithTheNumberOfAStandardStreamStaysTheCallers) {
  run(processes(2), [](Rank& rank) {
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    Shared shared(2 * kBytes, 0);
    ASSERT_EQ(dup2(shared.fd(), STDIN_FILENO), STDIN_FILENO);
    shared.close_fd();
    symm_window_options named = window_options();
    named.flags = SYMM_WINDOW_FD;
    named.fd = STDIN_FILENO;
    for (const symm_window_options* options :
         {&named, static_cast<symm_window_options*>(nullptr)}) {
      const Window window = register_memory(comm.get(), shared.start(), kBytes, options);
      works_over(rank, comm.get(), window.get(), shared.start());
      struct stat status;
      ASSERT_EQ(fstat(STDIN_FILENO, &status), 0) << "symm closed it";
      EXPECT_GE(static_cast<size_t>(status.st_size), 2 * kBytes);
    }
  });
}

TEST(Register, KindsOfMemoryMayDifferBetweenRanks) {
  run(processes(3), [](Rank& rank) {
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    Window home = alloc(comm.get(), kBytes);
    const Shared shared(kBytes);
    symm_window_options options = window_options();
    if (rank.rank == 1) {
      options.flags = SYMM_WINDOW_FD;
      options.fd = shared.fd();
    }
    char* memory = rank.rank == 0 ? data_as<char>(home.get(), 0) : shared.start();
    const Window window = register_memory(comm.get(), memory, kBytes, &options);
    works_over(rank, comm.get(), window.get(), memory);
  });
}

TEST(Register, DifferentSizesFailEveryRankWithTheSizes) {
  run(processes(3), [](Rank& rank) {
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    Window home = alloc(comm.get(), 8192);
    symm_window* window = nullptr;
    const symm_status status = symm_window_register(comm.get(), data(home.get(), rank.rank),
                                                    rank.rank == 2 ? 8192 : 4096, nullptr, &window);
    EXPECT_NE(status, SYMM_OK);
    EXPECT_TRUE(
        mentions_all(symm_last_error(), {"symm_window_register", "rank 2", "4096", "8192"}));
    EXPECT_EQ(window, nullptr);
  });
}

TEST(Register, TheLibrarysOwnMappingSurvivesTheCallers) {
  run(processes(2), [](Rank& rank) {
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    Window window;
    {
      const Shared shared(kBytes);
      std::memset(shared.start(), 7 + rank.rank, kBytes);
      window = register_memory(comm.get(), shared.start(), kBytes);
      barrier(comm.get());
    }
    // Unmapped by its owner: a caller's mistake, which must not become a fault of its peers.
    EXPECT_EQ(*data_as<char>(window.get(), 1 - rank.rank), 8 - rank.rank);
    barrier(comm.get());
  });
}

TEST(Register, AWindowFreedBeforeTheOneRegisteredInItLeavesThatWhole) {
  run(processes(2), [](Rank& rank) {
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    Window home = alloc(comm.get(), 2 * kBytes);
    const Window window =
        register_memory(comm.get(), data_as<char>(home.get(), rank.rank) + 4096, kBytes);
    *data_as<int>(window.get(), rank.rank) = 31 + rank.rank;
    home.reset();
    barrier(comm.get());
    const Window next = alloc(comm.get(), 2 * kBytes);  // may not take that memory
    std::memset(data(next.get(), rank.rank), 0xff, 2 * kBytes);
    barrier(comm.get());
    EXPECT_EQ(*data_as<int>(window.get(), 1 - rank.rank), 32 - rank.rank);
    barrier(comm.get());
  });
}

TEST(Register, OfTheSameMemoryTwiceIsTwoWindows) {
  run(processes(2), [](Rank& rank) {
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    const Shared shared(kBytes);
    const Window first = register_memory(comm.get(), shared.start(), kBytes);
    {
      const Window second = register_memory(comm.get(), shared.start(), kBytes);
      works_over(rank, comm.get(), second.get(), shared.start());
    }
    works_over(rank, comm.get(), first.get(), shared.start());
  });
}

TEST(Register, AThousandTimesLeavesNothingBehind) {
  run(processes(2), [](Rank& rank) {
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    const Shared shared(kBytes);
    { const Window warm_up = register_memory(comm.get(), shared.start(), kBytes); }
    barrier(comm.get());
    const Footprint before = footprint();
    for (int round = 0; round < 1000 / kSlowdown; ++round) {
      const Window window =
          register_memory(comm.get(), shared.start() + 64 * (round % 10), kBytes / 2);
      ASSERT_NE(window, nullptr);
    }
    barrier(comm.get());
    EXPECT_TRUE(returns_to(before));
    barrier(comm.get());
  });
}

}  // namespace
}  // namespace symm_test
