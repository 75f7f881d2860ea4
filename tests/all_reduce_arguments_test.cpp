// What the all-reduces say to bad arguments: locally, before anything is sent, and not for good.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "capi/symm.h"
#include "tests/support/calls.h"
#include "tests/support/reference.h"

namespace symm_test {
namespace {

constexpr size_t kCount = 16;

class AllReduceArguments : public testing::Test {
 protected:
  void SetUp() override { output.assign(kCount, -77.0); }
  void TearDown() override {
    for (double value : output) EXPECT_EQ(value, -77.0) << "an output was written by a failed call";
    EXPECT_TRUE(ok(symm_comm_check(comm.get(), nullptr)));
    EXPECT_TRUE(adds_up(comm.get()));
  }
  symm_status call(const void* in, void* out, size_t count, int dtype = SYMM_FLOAT64,
                   int op = SYMM_SUM, void* stream = nullptr) {
    return symm_all_reduce(comm.get(), in, out, count, static_cast<symm_dtype>(dtype),
                           static_cast<symm_op>(op), stream);
  }
  symm_status call_window(size_t offset, void* out, size_t count, int dtype = SYMM_FLOAT64,
                          int op = SYMM_SUM, void* stream = nullptr) {
    return symm_window_all_reduce(window.get(), offset, out, count, static_cast<symm_dtype>(dtype),
                                  static_cast<symm_op>(op), stream);
  }
  char* bytes() { return reinterpret_cast<char*>(output.data()); }

  static constexpr size_t kWindowBytes = 4096 + 8;
  Comm comm = create_alone();
  Window window = alloc(comm.get(), kWindowBytes);
  std::vector<double> input = std::vector<double>(kCount, 1.0);
  std::vector<double> output;
};

TEST_F(AllReduceArguments, NullPointersAreRefusedByName) {
  const auto bad = SYMM_INVALID_ARGUMENT;
  EXPECT_TRUE(fails(
      bad,
      symm_all_reduce(nullptr, input.data(), output.data(), 1, SYMM_FLOAT64, SYMM_SUM, nullptr),
      {"symm_all_reduce", "comm"}));
  EXPECT_TRUE(fails(
      bad, symm_window_all_reduce(nullptr, 0, output.data(), 1, SYMM_FLOAT64, SYMM_SUM, nullptr),
      {"symm_window_all_reduce", "window"}));
  EXPECT_TRUE(fails(bad, call(nullptr, output.data(), 1), {"symm_all_reduce", "input"}));
  EXPECT_TRUE(fails(bad, call(input.data(), nullptr, 1), {"symm_all_reduce", "output"}));
  EXPECT_TRUE(fails(bad, call_window(0, nullptr, 1), {"symm_window_all_reduce", "output"}));
}

TEST_F(AllReduceArguments, NoElementsNeedNoPointers) {
  EXPECT_TRUE(ok(call(nullptr, nullptr, 0)));
  EXPECT_TRUE(ok(call(input.data(), input.data(), 0)));
  EXPECT_TRUE(ok(call_window(0, nullptr, 0)));
  EXPECT_TRUE(ok(call_window(kWindowBytes, nullptr, 0)));
}

TEST_F(AllReduceArguments, UnknownTypesAndOperationsAreUnsupported) {
  for (int unknown : {12, 77, 0x10000, -1, -9, INT32_MAX, INT32_MIN}) {
    const std::string number = std::to_string(unknown);
    EXPECT_TRUE(
        fails(SYMM_UNSUPPORTED, call(input.data(), output.data(), 1, unknown), {"dtype", number}));
    EXPECT_TRUE(
        fails(SYMM_UNSUPPORTED, call_window(0, output.data(), 1, unknown), {"dtype", number}));
    // Not even for nothing to do.
    EXPECT_TRUE(fails(SYMM_UNSUPPORTED, call(input.data(), output.data(), 0, unknown), {"dtype"}));
  }
  for (int unknown : {5, 77, 0x10000, -1, -9, INT32_MAX, INT32_MIN}) {
    const std::string number = std::to_string(unknown);
    EXPECT_TRUE(fails(SYMM_UNSUPPORTED, call(input.data(), output.data(), 1, SYMM_INT8, unknown),
                      {"op", number}));
    EXPECT_TRUE(fails(SYMM_UNSUPPORTED, call_window(0, output.data(), 1, SYMM_INT8, unknown),
                      {"op", number}));
  }
}

TEST_F(AllReduceArguments, AStreamIsRefusedOnCpuRanks) {
  int stream = 0;
  EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT,
                    call(input.data(), output.data(), 1, SYMM_FLOAT64, SYMM_SUM, &stream),
                    {"symm_all_reduce", "stream"}));
  EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT,
                    call_window(0, output.data(), 1, SYMM_FLOAT64, SYMM_SUM, &stream),
                    {"symm_window_all_reduce", "stream"}));
}

TEST_F(AllReduceArguments, MisalignedPointersAreRefusedForEveryTypeWiderThanAByte) {
  for (symm_dtype dtype : kAllDtypes) {
    for (size_t shift = 1; shift < size_of(dtype); ++shift) {
      auto* in = reinterpret_cast<const char*>(input.data()) + shift;
      EXPECT_TRUE(
          fails(SYMM_INVALID_ARGUMENT, call(in, output.data(), 1, dtype), {"input", "align"}));
      EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT, call(input.data(), bytes() + shift, 1, dtype),
                        {"output", "align"}));
      EXPECT_TRUE(
          fails(SYMM_INVALID_ARGUMENT, call_window(shift, output.data(), 1, dtype), {"offset"}));
      EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT, call_window(0, bytes() + shift, 1, dtype),
                        {"output", "align"}));
    }
  }
}

TEST_F(AllReduceArguments, OverlapThatIsNotInPlaceIsRefused) {
  double* values = output.data();
  EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT, call(values, values + 1, 2), {"overlap"}));
  EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT, call(values + 1, values, 2), {"overlap"}));
  EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT, call(values, values + 7, 8), {"overlap"}));
  auto* own = data_as<double>(window.get(), 0);
  EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT, call_window(0, own + 1, 2), {"overlap"}));
  EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT, call_window(16, own + 1, 2), {"overlap"}));
}

TEST_F(AllReduceArguments, NeighboursDoNotOverlap) {
  std::vector<double> both(2 * kCount, 2.0);
  EXPECT_TRUE(ok(call(both.data(), both.data() + kCount, kCount)));
  EXPECT_TRUE(ok(call(both.data() + kCount, both.data(), kCount)));
  auto* own = data_as<double>(window.get(), 0);
  EXPECT_TRUE(ok(call_window(0, own + 8, 8)));
  EXPECT_TRUE(ok(call_window(64, own, 8)));
}

TEST_F(AllReduceArguments, CountsWhoseBytesOverflowAreRefused) {
  for (size_t count : {SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / 8 + 1, SIZE_MAX / 8}) {
    EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT, call(input.data(), output.data(), count),
                      {"symm_all_reduce", "count", std::to_string(count)}));
    EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT, call_window(0, output.data(), count),
                      {"symm_window_all_reduce", "count", std::to_string(count)}));
  }
  // The bytes are few enough; the range would pass the end of the address space.
  auto* near_the_end = reinterpret_cast<char*>(UINTPTR_MAX - 63);
  EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT, call(near_the_end, output.data(), 100)));
  EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT, call(input.data(), near_the_end, 100)));
}

TEST_F(AllReduceArguments, AWindowIsUsedFromItsFirstToItsLastByteAndNotOnePast) {
  constexpr size_t kElements = kWindowBytes / sizeof(double);
  auto* own = data_as<double>(window.get(), 0);
  for (size_t i = 0; i < kElements; ++i) own[i] = static_cast<double>(i);
  std::vector<double> result(kElements);
  EXPECT_TRUE(ok(call_window(0, result.data(), kElements)));
  EXPECT_EQ(result[kElements - 1], static_cast<double>(kElements - 1));
  EXPECT_TRUE(ok(call_window(256 * 8, result.data(), 1)));
  EXPECT_EQ(result[0], 256.0);
  EXPECT_TRUE(ok(call_window(kWindowBytes - 8, result.data(), 1)));
  EXPECT_EQ(result[0], static_cast<double>(kElements - 1));

  const auto past = [&](size_t offset, size_t count) {
    EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT, call_window(offset, output.data(), count),
                      {"symm_window_all_reduce", "offset", std::to_string(offset),
                       std::to_string(kWindowBytes)}));
  };
  past(0, kElements + 1);
  past(8, kElements);
  past(kWindowBytes - 8, 2);
  past(kWindowBytes, 1);
  past(kWindowBytes + 8, 0);
  past(SIZE_MAX - 7, 1);
  past(SIZE_MAX - 7, 2);
}

TEST_F(AllReduceArguments, OffsetsAreBytesNotElements) {
  auto* own = data_as<float>(window.get(), 0);
  own[2] = 5.0f;
  own[8] = 9.0f;
  float result = 0;
  EXPECT_TRUE(ok(call_window(8, &result, 1, SYMM_FLOAT32)));
  EXPECT_EQ(result, 5.0f);
}

TEST(AllReduceRefusal, IsLocalSendsNothingAndMayBeRetried) {
  run(processes(3), [](Rank& rank) {
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    const Window window = alloc(comm.get(), 64);
    for (int round = 0; round < 20; ++round) {
      // One rank in turn is wrong once or several times before it gets its call right.
      int64_t mine = rank.rank + 1, sum = 0;
      for (int wrong = 0; wrong < round % 3 && round % rank.size == rank.rank; ++wrong) {
        EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT, symm_all_reduce(comm.get(), &mine, nullptr, 1,
                                                                 SYMM_INT64, SYMM_SUM, nullptr)));
        EXPECT_TRUE(fails(
            SYMM_INVALID_ARGUMENT,
            symm_window_all_reduce(window.get(), 64, &sum, 1, SYMM_INT64, SYMM_SUM, nullptr)));
        EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT, symm_comm_barrier(comm.get(), &sum)));
        EXPECT_TRUE(ok(symm_comm_check(comm.get(), nullptr)));
      }
      EXPECT_TRUE(ok(symm_all_reduce(comm.get(), &mine, &sum, 1, SYMM_INT64, SYMM_SUM, nullptr)));
      EXPECT_EQ(sum, 6);
    }
  });
}

}  // namespace
}  // namespace symm_test
