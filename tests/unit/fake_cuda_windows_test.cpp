// Windows over GPU memory, over the fake driver: what is shared, where it is, when it goes.
#include <cstring>
#include <set>

#include "core/cuda/slices.h"
#include "tests/unit/fake_cuda_ranks.h"

namespace symm::cuda {
namespace {

constexpr size_t kGranule = 2 << 20;

class CudaWindows : public ::testing::Test {
 protected:
  void SetUp() override {
    comm_ = create({0, 1});
    expect_all(comm_.outcomes, SYMM_OK);
    before_ = fake_.alive();
  }
  void TearDown() override {
    free_all(comm_);
    EXPECT_TRUE(nothing_left(fake_));
  }
  FakeCuda fake_;
  Communicator comm_;
  FakeCuda::Alive before_;
};

TEST_F(CudaWindows, EveryRankSeesEveryCopy) {
  for (const size_t bytes : {size_t{4}, size_t{100000}, kGranule, 3 * kGranule + 8}) {
    Windows w = alloc(comm_, {bytes, bytes});
    expect_all(w.outcomes, SYMM_OK);
    for (int rank = 0; rank < 2; ++rank) {
      char* mine = data(w.window[static_cast<size_t>(rank)], rank);
      EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(mine) % 256);
      EXPECT_EQ(0, mine[0]);
      EXPECT_EQ(0, mine[bytes - 1]);
      mine[bytes - 1] = static_cast<char>(rank + 1);
    }
    for (size_t rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(1, data(w.window[rank], 0)[bytes - 1]);
      EXPECT_EQ(2, data(w.window[rank], 1)[bytes - 1]);
    }
    free_all(w);
  }
}

TEST_F(CudaWindows, BytesMustAgree) {
  Windows w = alloc(comm_, {64, 4 * kGranule});
  expect_all(w.outcomes, SYMM_INVALID_ARGUMENT, "bytes differ");
  EXPECT_TRUE(nothing_left(fake_, before_));
  w = alloc(comm_, {64, 64});
  expect_all(w.outcomes, SYMM_OK);
  free_all(w);
}

TEST_F(CudaWindows, SmallOnesShareAGranule) {
  std::vector<Windows> windows;
  std::set<char*> places;
  for (int i = 0; i < 64; ++i) {
    windows.push_back(alloc(comm_, {4, 4}));
    expect_all(windows.back().outcomes, SYMM_OK);
    EXPECT_TRUE(places.insert(data(windows.back().window[0], 0)).second);
  }
  EXPECT_EQ(before_.allocations + 2, fake_.alive().allocations);
  for (Windows& w : windows) free_all(w);
}

TEST_F(CudaWindows, ASliceIsReusedOnlyOnceEveryRankHasFreedIt) {
  Windows first = alloc(comm_, {512, 512});
  char* place = data(first.window[0], 0);
  std::memset(place, 7, 512);
  symm_window_free(first.window[0]);
  first.window[0] = nullptr;
  settle();
  Windows second = alloc(comm_, {512, 512});
  EXPECT_NE(place, data(second.window[0], 0));
  free_all(first);
  settle();
  Windows third = alloc(comm_, {512, 512});
  EXPECT_EQ(place, data(third.window[0], 0));
  EXPECT_EQ(0, place[0]) << "memory that was another window's is zeroed";
  free_all(second);
  free_all(third);
}

TEST_F(CudaWindows, ThousandsOfCyclesLeaveNothingBehind) {
  for (int i = 0; i < 1500; ++i) {
    const size_t bytes = i % 10 == 0 ? 2 * kGranule : static_cast<size_t>(64 + 1000 * (i % 7));
    Windows w = alloc(comm_, {bytes, bytes});
    ASSERT_EQ(SYMM_OK, w.outcomes[0].status) << w.outcomes[0].message;
    free_all(w);
    const int most = before_.allocations + 40;
    if (fake_.alive().allocations > most) settle();  // the thread that gives back is behind
    ASSERT_LE(fake_.alive().allocations, most) << i;
  }
  EXPECT_TRUE(eventually([&] { return fake_.alive().allocations <= before_.allocations + 4; }));
}

TEST_F(CudaWindows, RegistersTheInteriorOfSeveralAllocations) {
  char* memory[2] = {static_cast<char*>(fake_.map(0, 6 * kGranule, 3)),
                     static_cast<char*>(fake_.map(1, 2 * kGranule, 1))};
  // Other offsets and other numbers of allocations on the two ranks.
  char* pointers[2] = {memory[0] + kGranule + 100, memory[1] + 8};
  const size_t bytes = 2 * kGranule - 8;
  Windows w = register_all(comm_, {pointers[0], pointers[1]}, bytes);
  expect_all(w.outcomes, SYMM_OK);
  for (size_t rank = 0; rank < 2; ++rank) {
    pointers[rank][0] = static_cast<char>(rank + 3);
    pointers[rank][bytes - 1] = static_cast<char>(rank + 5);
  }
  for (size_t rank = 0; rank < 2; ++rank) {
    for (int of = 0; of < 2; ++of) {
      EXPECT_NE(pointers[of], data(w.window[rank], of));
      EXPECT_EQ(of + 3, data(w.window[rank], of)[0]);
      EXPECT_EQ(of + 5, data(w.window[rank], of)[bytes - 1]);
    }
  }
  // The library's own mapping outlives the owner's.
  fake_.unmap(memory[0]);
  EXPECT_EQ(3, data(w.window[1], 0)[0]);
  fake_.unmap(memory[1]);
  free_all(w);
  EXPECT_TRUE(nothing_left(fake_, before_));
}

TEST_F(CudaWindows, MemoryThatWasFreedIsRefusedBeforeALaunch) {
  void* memory[2] = {fake_.malloc(0, 4096), fake_.malloc(1, 4096)};
  CUstream stream = fake_.make_stream(0);
  void* output = fake_.malloc(0, 64);
  Windows w = register_all(comm_, {static_cast<char*>(memory[0]) + 256, memory[1]}, 1024);
  expect_all(w.outcomes, SYMM_OK);
  EXPECT_EQ(static_cast<char*>(memory[0]) + 256, data(w.window[1], 0));
  const auto reduce = [&] {
    return symm_window_all_reduce(w.window[0], 0, output, 16, SYMM_FLOAT32, SYMM_SUM, stream);
  };
  EXPECT_EQ(SYMM_OK, reduce()) << symm_last_error();
  fake_.free(memory[0]);
  const size_t launches = fake_.launches().size();
  EXPECT_EQ(SYMM_INVALID_ARGUMENT, reduce());
  EXPECT_NE(nullptr, std::strstr(symm_last_error(), "was freed after it was registered"));
  EXPECT_EQ(launches, fake_.launches().size());
  EXPECT_EQ(SYMM_OK, symm_comm_check(comm_.comm[0], nullptr));
  free_all(w);
  fake_.free(memory[1]);
  fake_.free(output);
  fake_.destroy_stream(stream);
}

TEST_F(CudaWindows, MemoryThatNobodyElseCanMapIsRefusedOnEveryRank) {
  char host[64];
  void* own[2] = {fake_.malloc(0, 4096), fake_.malloc(1, 4096)};
  void* unexportable = fake_.map(1, kGranule, 1, false);
  struct Row {
    void* pointer;
    symm_status status;
    const char* message;
  };
  for (const Row& row :
       {Row{host, SYMM_INVALID_ARGUMENT, "is not memory of a GPU"},
        Row{nullptr, SYMM_INVALID_ARGUMENT, "is NULL"},
        Row{own[0], SYMM_INVALID_ARGUMENT, "is memory of GPU 0"},
        Row{static_cast<char*>(own[1]) + 4000, SYMM_INVALID_ARGUMENT, "past the end"},
        Row{unexportable, SYMM_UNSUPPORTED, "without a file descriptor"}}) {
    Windows w = register_all(comm_, {own[0], row.pointer}, 1024);
    expect_all(w.outcomes, row.status, row.message);
  }
  fake_.unmap(unexportable);
  fake_.free(own[0]);
  fake_.free(own[1]);
}

TEST(CudaSlices, FillGapsAndForgetEmptySlabs) {
  Slices slices(2, 4096);
  EXPECT_FALSE(slices.place(1, 100));
  EXPECT_EQ(0u, slices.add_slab());
  EXPECT_EQ((Slices::Place{0, 0}), slices.place(1, 100));
  EXPECT_EQ((Slices::Place{0, 256}), slices.place(2, 257));
  EXPECT_EQ((Slices::Place{0, 768}), slices.place(3, 1));
  slices.freed(0, {2, 77});
  EXPECT_EQ((Slices::Place{0, 1024}), slices.place(4, 512));
  slices.freed(1, {2});
  EXPECT_EQ((Slices::Place{0, 256}), slices.place(5, 512));
  EXPECT_FALSE(slices.place(6, 4096));
  EXPECT_EQ(1u, slices.add_slab());
  EXPECT_EQ((Slices::Place{1, 0}), slices.place(6, 4096));
  slices.undo(6);
  slices.undo(6);
  EXPECT_TRUE(slices.take_empty_slabs().empty()) << "one is kept for the next";
  for (const uint64_t window : {1, 3, 4, 5}) {
    slices.freed(0, {window});
    slices.freed(1, {window});
  }
  EXPECT_EQ(std::vector<uint64_t>{1}, slices.take_empty_slabs());
  EXPECT_EQ(1u, slices.slabs());
}

}  // namespace
}  // namespace symm::cuda
