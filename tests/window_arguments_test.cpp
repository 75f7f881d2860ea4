// What the functions about windows say to bad arguments. Worlds of one: what other ranks learn of a
// refusal is in setup_agreement_test.cpp.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "capi/symm.h"
#include "tests/support/calls.h"

namespace symm_test {
namespace {

class WindowArguments : public testing::Test {
 protected:
  // Whatever was refused, the communicator still works.
  void TearDown() override {
    EXPECT_TRUE(ok(symm_comm_check(comm.get(), nullptr)));
    EXPECT_TRUE(adds_up(comm.get()));
    EXPECT_TRUE(ok(symm_comm_barrier(comm.get(), nullptr)));
  }

  symm_status alloc_with(const symm_window_options& options) {
    symm_window* window = nullptr;
    const symm_status status = symm_window_alloc(comm.get(), 64, &options, &window);
    symm_window_free(window);
    return status;
  }

  symm_status register_with(void* pointer, size_t bytes, const symm_window_options* options) {
    symm_window* window = nullptr;
    const symm_status status = symm_window_register(comm.get(), pointer, bytes, options, &window);
    if (status != SYMM_OK) {
      EXPECT_EQ(window, nullptr);
    }
    symm_window_free(window);
    return status;
  }

  Comm comm = create_alone();
};

TEST_F(WindowArguments, NoFunctionTakesANullHandleOrOutput) {
  const Window window = alloc(comm.get(), 64);
  symm_window* out = nullptr;
  size_t bytes = 42;
  void* pointer = &bytes;
  const auto bad = SYMM_INVALID_ARGUMENT;
  EXPECT_TRUE(
      fails(bad, symm_window_alloc(nullptr, 64, nullptr, &out), {"symm_window_alloc", "comm"}));
  EXPECT_TRUE(fails(bad, symm_window_alloc(comm.get(), 64, nullptr, nullptr),
                    {"symm_window_alloc", "window"}));
  EXPECT_TRUE(fails(bad, symm_window_register(nullptr, &bytes, 8, nullptr, &out),
                    {"symm_window_register", "comm"}));
  EXPECT_TRUE(fails(bad,
                    symm_window_register(comm.get(), data(window.get(), 0), 8, nullptr, nullptr),
                    {"symm_window_register", "window"}));
  EXPECT_TRUE(fails(bad, symm_window_register(comm.get(), nullptr, 8, nullptr, &out),
                    {"symm_window_register", "pointer"}));
  EXPECT_TRUE(fails(bad, symm_window_size(nullptr, &bytes), {"symm_window_size", "window"}));
  EXPECT_TRUE(fails(bad, symm_window_size(window.get(), nullptr), {"symm_window_size", "bytes"}));
  EXPECT_TRUE(fails(bad, symm_window_data(nullptr, 0, &pointer), {"symm_window_data", "window"}));
  EXPECT_TRUE(
      fails(bad, symm_window_data(window.get(), 0, nullptr), {"symm_window_data", "pointer"}));
  EXPECT_EQ(out, nullptr);
  EXPECT_EQ(bytes, 42u);
  EXPECT_EQ(pointer, &bytes);
}

TEST_F(WindowArguments, DataOfARankThatIsNotThereIsRefused) {
  const Window window = alloc(comm.get(), 64);
  for (int rank : {-1, 1, 1000000}) {
    void* pointer = this;
    EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT, symm_window_data(window.get(), rank, &pointer),
                      {"symm_window_data", "rank", std::to_string(rank)}));
    EXPECT_EQ(pointer, this);
  }
}

TEST_F(WindowArguments, OptionsAreCheckedLikeAnyOthers) {
  for (size_t size : {size_t{0}, size_t{7}, size_t{12}, sizeof(symm_window_options) - 1}) {
    symm_window_options options = window_options();
    options.size = size;
    EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT, alloc_with(options), {"options", "size"})) << size;
  }
  symm_window_options options = window_options();
  options.flags = 1u << 31;
  EXPECT_TRUE(fails(SYMM_UNSUPPORTED, alloc_with(options), {"flags"}));
  options = window_options();
  options.flags = SYMM_WINDOW_NCCL;
  EXPECT_TRUE(fails(SYMM_UNSUPPORTED, alloc_with(options), {"NCCL"}));
  struct Later {
    symm_window_options known;
    uint64_t added;
  } later = {};
  later.known.size = sizeof later;
  EXPECT_TRUE(ok(alloc_with(later.known)));
  later.added = 1;
  EXPECT_TRUE(fails(SYMM_UNSUPPORTED, alloc_with(later.known), {"options"}));
}

TEST_F(WindowArguments, TheErrorBufferOfTheOptionsGetsTheMessage) {
  char error[512] = "old";
  symm_window_options options = window_options();
  options.error = error;
  options.error_size = sizeof error;
  options.flags = 1u << 31;
  EXPECT_TRUE(fails(SYMM_UNSUPPORTED, alloc_with(options)));
  EXPECT_STREQ(error, symm_last_error());
  options.flags = 0;
  EXPECT_TRUE(ok(alloc_with(options)));
  EXPECT_STREQ(error, "");
}

TEST_F(WindowArguments, MoreMemoryThanThereCanBeIsOutOfMemory) {
  for (size_t bytes : {SIZE_MAX, SIZE_MAX - 4096, SIZE_MAX / 2, size_t{1} << 60}) {
    symm_window* window = nullptr;
    const symm_status status = symm_window_alloc(comm.get(), bytes, nullptr, &window);
    EXPECT_TRUE(fails(SYMM_OUT_OF_MEMORY, status, {"symm_window_alloc", std::to_string(bytes)}));
    EXPECT_EQ(window, nullptr);
  }
}

TEST_F(WindowArguments, PrivateMemoryIsUnsupportedWithTheRemedy) {
  std::vector<char> heap(8192);
  EXPECT_TRUE(fails(SYMM_UNSUPPORTED, register_with(heap.data(), heap.size(), nullptr),
                    {"symm_window_register", "memfd"}));
  int on_stack[64] = {};
  EXPECT_TRUE(fails(SYMM_UNSUPPORTED, register_with(on_stack, sizeof on_stack, nullptr)));
}

TEST_F(WindowArguments, ARangeThatIsNotMappedIsRefused) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* hole = mmap(nullptr, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(hole, MAP_FAILED);
  munmap(hole, page);
  EXPECT_NE(register_with(hole, page, nullptr), SYMM_OK);
  EXPECT_TRUE(mentions_all(symm_last_error(), {"symm_window_register", "pointer"}));
  EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT,
                    register_with(reinterpret_cast<void*>(UINTPTR_MAX - 100), 4096, nullptr)));
}

TEST_F(WindowArguments, ARangeThatLeavesItsWindowIsRefused) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const Window window = alloc(comm.get(), 2 * page);
  auto* start = data_as<char>(window.get(), 0);
  EXPECT_TRUE(ok(register_with(start, 2 * page, nullptr)));
  EXPECT_TRUE(ok(register_with(start + 256, page, nullptr)));
  EXPECT_NE(register_with(start, 1 << 30, nullptr), SYMM_OK);
}

TEST_F(WindowArguments, AFileDescriptorThatDoesNotFitIsRefused) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const int fd = memfd_create("fits", MFD_CLOEXEC);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(ftruncate(fd, static_cast<off_t>(2 * page)), 0);
  void* mapped = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  symm_window_options options = window_options();
  options.flags = SYMM_WINDOW_FD;
  options.fd = fd;
  EXPECT_TRUE(ok(register_with(mapped, 2 * page, &options)));
  options.fd_offset = page;  // not what is mapped there
  EXPECT_TRUE(
      fails(SYMM_INVALID_ARGUMENT, register_with(mapped, 2 * page, &options), {"fd_offset"}));
  options.fd_offset = SIZE_MAX - 16;
  EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT, register_with(mapped, page, &options), {"fd_offset"}));
  options.fd_offset = 0;
  for (int closed : {-1, 19999}) {
    options.fd = closed;
    EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT, register_with(mapped, page, &options), {"fd"}));
  }
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  options.fd = pipe_ends[0];
  EXPECT_NE(register_with(mapped, page, &options), SYMM_OK);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  munmap(mapped, 2 * page);
  close(fd);
}

}  // namespace
}  // namespace symm_test
