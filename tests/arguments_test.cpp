// What the functions about the library and about communicators say to bad arguments.
#include <gtest/gtest.h>

#include <climits>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "capi/symm.h"
#include "tests/support/calls.h"
#include "tests/support/places.h"

namespace symm_test {
namespace {

TEST(Library, ItsVersionIsTheHeaders) {
  EXPECT_EQ(symm_version(),
            SYMM_VERSION_MAJOR * 1000000 + SYMM_VERSION_MINOR * 1000 + SYMM_VERSION_PATCH);
}

TEST(Library, EveryStatusHasItsNameAndEveryOtherNumberIsUnknown) {
  const std::vector<std::pair<int, const char*>> names = {
      {SYMM_OK, "SYMM_OK"},
      {SYMM_INVALID_ARGUMENT, "SYMM_INVALID_ARGUMENT"},
      {SYMM_OUT_OF_MEMORY, "SYMM_OUT_OF_MEMORY"},
      {SYMM_UNSUPPORTED, "SYMM_UNSUPPORTED"},
      {SYMM_SYSTEM, "SYMM_SYSTEM"},
      {SYMM_CUDA, "SYMM_CUDA"},
      {SYMM_NCCL, "SYMM_NCCL"},
      {SYMM_TIMEOUT, "SYMM_TIMEOUT"},
      {SYMM_PEER, "SYMM_PEER"},
      {SYMM_MISMATCH, "SYMM_MISMATCH"},
      {SYMM_ABORTED, "SYMM_ABORTED"},
      {SYMM_INTERNAL, "SYMM_INTERNAL"}};
  for (const auto& [status, name] : names) EXPECT_STREQ(symm_status_name(status), name);
  for (int unknown : {1, -12, -100, INT_MAX, INT_MIN}) {
    EXPECT_STREQ(symm_status_name(unknown), "SYMM_UNKNOWN") << unknown;
  }
}

TEST(LastError, IsEmptyInAThreadThatHasNotFailed) {
  EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT, symm_comm_abort(nullptr)));
  std::thread([] {
    EXPECT_STREQ(symm_last_error(), "");
    EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT, symm_comm_barrier(nullptr, nullptr),
                      {"symm_comm_barrier", "comm"}));
  }).join();
  EXPECT_TRUE(mentions_all(symm_last_error(), {"symm_comm_abort", "comm"}));
}

TEST(LastError, IsKeptWhileCallsSucceed) {
  const Comm comm = create_alone();
  int32_t rank = -1;
  EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT, symm_comm_rank(nullptr, &rank)));
  const std::string message = symm_last_error();
  EXPECT_TRUE(ok(symm_comm_rank(comm.get(), &rank)));
  EXPECT_TRUE(adds_up(comm.get()));
  EXPECT_EQ(message, symm_last_error());
}

// ---- symm_comm_create ----

struct BadCreate {
  const char* address;
  int rank;
  int size;
  int device;
  symm_status status;
  std::vector<const char*> mentions;
};

TEST(CommCreate, RefusesABadArgumentNamingIt) {
  const std::string good = local_address();
  const std::string with_control = "tcp://127.0.0.1\n:" + std::to_string(free_port());
  const std::string endless = "file:///" + std::string(5000, 'x');
  const auto bad = SYMM_INVALID_ARGUMENT;
  const std::vector<BadCreate> cases = {
      {nullptr, 0, 1, SYMM_CPU, bad, {"address"}},
      {"", 0, 1, SYMM_CPU, bad, {"address"}},
      {"nonsense", 0, 1, SYMM_CPU, bad, {"nonsense", "tcp://"}},
      {"http://127.0.0.1:80", 0, 1, SYMM_CPU, bad, {"http://127.0.0.1:80"}},
      {"tcp://", 0, 1, SYMM_CPU, bad, {"tcp://"}},
      {"tcp://127.0.0.1", 0, 1, SYMM_CPU, bad, {"127.0.0.1"}},
      {"tcp://127.0.0.1:", 0, 1, SYMM_CPU, bad, {"127.0.0.1:"}},
      {"tcp://127.0.0.1:0", 0, 1, SYMM_CPU, bad, {"127.0.0.1:0"}},
      {"tcp://127.0.0.1:65536", 0, 1, SYMM_CPU, bad, {"65536"}},
      {"tcp://127.0.0.1:-1", 0, 1, SYMM_CPU, bad, {"-1"}},
      {"tcp://127.0.0.1:80x", 0, 1, SYMM_CPU, bad, {"80x"}},
      {"tcp://:80", 0, 1, SYMM_CPU, bad, {"tcp://:80"}},
      {"file://", 0, 1, SYMM_CPU, bad, {"file://"}},
      {"file://relative/path", 0, 1, SYMM_CPU, bad, {"relative/path"}},
      {"env://something", 0, 1, SYMM_CPU, bad, {"env://something"}},
      {"symm://", 0, 1, SYMM_CPU, bad, {"symm://"}},
      {with_control.c_str(), 0, 1, SYMM_CPU, bad, {"address"}},
      {endless.c_str(), 0, 1, SYMM_CPU, bad, {"address"}},
      {good.c_str(), -2, 1, SYMM_CPU, bad, {"rank", "-2"}},
      {good.c_str(), 1, 1, SYMM_CPU, bad, {"rank", "1"}},
      {good.c_str(), INT_MAX, 2, SYMM_CPU, bad, {"rank", "2147483647"}},
      {good.c_str(), 0, 0, SYMM_CPU, bad, {"size", "0"}},
      {good.c_str(), 0, -7, SYMM_CPU, bad, {"size", "-7"}},
      {good.c_str(), SYMM_FROM_ADDRESS, 1, SYMM_CPU, bad, {"rank", "env://"}},
      {good.c_str(), 0, SYMM_FROM_ADDRESS, SYMM_CPU, bad, {"size", "env://"}},
  };
  for (const BadCreate& c : cases) {
    const Stopwatch clock;
    char buffer[1];
    symm_comm* const untouched = reinterpret_cast<symm_comm*>(buffer);
    symm_comm* comm = untouched;
    // A rank that is wrong about itself looks for the others all the same, to tell them.
    const symm_comm_options options = comm_options(nullptr, 500);
    const symm_status status =
        symm_comm_create(c.address, c.rank, c.size, c.device, &options, &comm);
    EXPECT_TRUE(fails(c.status, status, {"symm_comm_create"})) << (c.address ? c.address : "NULL");
    for (const char* mention : c.mentions) {
      EXPECT_TRUE(mentions_all(symm_last_error(), {mention}));
    }
    EXPECT_EQ(comm, untouched);
    EXPECT_LT(clock.seconds(), 5 * kSlowdown);
  }
  EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT,
                    symm_comm_create(good.c_str(), 0, 1, SYMM_CPU, nullptr, nullptr),
                    {"symm_comm_create", "comm"}));
}

TEST(CommCreate, SaysThatThereIsNoCudaForEveryKindOfGpu) {
  char report[1 << 16];
  size_t needed = 0;
  ASSERT_TRUE(ok(symm_report(nullptr, report, sizeof report, &needed)));
  if (std::strstr(report, "\"cuda\":{\"available\":true") != nullptr) {
    GTEST_SKIP() << "this machine has GPUs";
  }
  const std::string address = local_address();
  for (int device : {0, 5, int{SYMM_LOCAL_GPU}, int{SYMM_CURRENT_GPU}}) {
    symm_comm* comm = nullptr;
    EXPECT_TRUE(fails(SYMM_UNSUPPORTED,
                      symm_comm_create(address.c_str(), 0, 1, device, nullptr, &comm),
                      {"symm_comm_create", "device", "CUDA"}))
        << device;
    EXPECT_EQ(comm, nullptr);
  }
}

TEST(CommCreate, FindsAnUnknownDeviceUnsupported) {
  const std::string address = local_address();
  for (int device : {-4, 0x10000, INT_MIN, INT_MAX}) {
    symm_comm* comm = nullptr;
    EXPECT_TRUE(fails(SYMM_UNSUPPORTED,
                      symm_comm_create(address.c_str(), 0, 1, device, nullptr, &comm),
                      {"device", std::to_string(device)}));
  }
}

symm_status create_with(const symm_comm_options& options) {
  const std::string address = local_address();
  symm_comm* comm = nullptr;
  const symm_status status = symm_comm_create(address.c_str(), 0, 1, SYMM_CPU, &options, &comm);
  symm_comm_free(comm);
  return status;
}

TEST(CommOptions, AStructOfNoPossibleSizeIsRefused) {
  for (size_t size : {size_t{0}, size_t{1}, sizeof(size_t) - 1, sizeof(size_t) + 4,
                      sizeof(symm_comm_options) - 1, sizeof(symm_comm_options) + 4, SIZE_MAX}) {
    symm_comm_options options = comm_options("name");
    options.size = size;
    EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT, create_with(options), {"options", "size"})) << size;
  }
}

TEST(CommOptions, AnEarlierShorterStructHasDefaultsInWhatItLacks) {
  symm_comm_options options = comm_options();
  options.size = sizeof(size_t);
  options.name = reinterpret_cast<const char*>(1);  // beyond the end: not looked at
  options.timeout_ms = -1;
  EXPECT_TRUE(ok(create_with(options)));
}

TEST(CommOptions, ALaterStructIsTakenWhileWhatItAddsIsZero) {
  struct Later {
    symm_comm_options known;
    uint64_t added[2];
  } later = {};
  later.known.size = sizeof later;
  EXPECT_TRUE(ok(create_with(later.known)));
  later.added[1] = uint64_t{1} << 63;
  EXPECT_TRUE(fails(SYMM_UNSUPPORTED, create_with(later.known), {"options"}));
}

TEST(CommOptions, WhatIsNotKnownOrNotAllowedIsRefused) {
  symm_comm_options options = comm_options();
  options.flags = 1u << 30;
  EXPECT_TRUE(fails(SYMM_UNSUPPORTED, create_with(options), {"flags"}));
  options = comm_options();
  options.reserved = 1;
  EXPECT_TRUE(fails(SYMM_UNSUPPORTED, create_with(options), {"reserved"}));
  options = comm_options();
  options.timeout_ms = -1;
  EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT, create_with(options), {"timeout_ms", "-1"}));
  options = comm_options();
  options.wait_timeout_ms = INT_MIN;
  EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT, create_with(options), {"wait_timeout_ms"}));
  options = comm_options();
  options.flags = SYMM_COMM_NCCL;
  EXPECT_TRUE(fails(SYMM_UNSUPPORTED, create_with(options), {"NCCL"}));
}

TEST(CommOptions, FlagsThatAskForLessThanCpuRanksGiveAreTaken) {
  symm_comm_options options = comm_options();
  options.flags = SYMM_COMM_SHARE_GPU | SYMM_COMM_STRICT | SYMM_COMM_SOLE;
  EXPECT_TRUE(ok(create_with(options)));
}

TEST(CommOptions, TheErrorBufferGetsTheMessageWhateverItsSize) {
  char error[4096];
  for (size_t size : {size_t{0}, size_t{1}, size_t{2}, size_t{20}, sizeof error}) {
    std::memset(error, 'x', sizeof error);
    symm_comm_options options = comm_options();
    options.error = error;
    options.error_size = size;
    options.timeout_ms = -1;
    EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT, create_with(options)));
    const std::string message = symm_last_error();
    if (size != 0) {
      EXPECT_EQ(std::string(error), message.substr(0, size - 1));
    }
    if (size < sizeof error) {
      EXPECT_EQ(error[size], 'x') << "wrote past the buffer of " << size;
    }
  }
}

TEST(CommOptions, TheErrorBufferIsEmptyAfterSuccess) {
  char error[16] = "old text";
  symm_comm_options options = comm_options();
  options.error = error;
  options.error_size = sizeof error;
  EXPECT_TRUE(ok(create_with(options)));
  EXPECT_STREQ(error, "");
}

// ---- The rest of symm_comm_* ----

TEST(Comm, NoFunctionTakesANullHandleOrOutput) {
  const Comm comm = create_alone();
  int32_t number = 42;
  void* pointer = &number;
  symm_comm* out = nullptr;
  const auto bad = SYMM_INVALID_ARGUMENT;
  EXPECT_TRUE(fails(bad, symm_comm_rank(nullptr, &number), {"symm_comm_rank", "comm"}));
  EXPECT_TRUE(fails(bad, symm_comm_rank(comm.get(), nullptr), {"symm_comm_rank", "rank"}));
  EXPECT_TRUE(fails(bad, symm_comm_size(nullptr, &number), {"symm_comm_size", "comm"}));
  EXPECT_TRUE(fails(bad, symm_comm_size(comm.get(), nullptr), {"symm_comm_size", "size"}));
  EXPECT_TRUE(fails(bad, symm_comm_device(nullptr, &number), {"symm_comm_device", "comm"}));
  EXPECT_TRUE(fails(bad, symm_comm_device(comm.get(), nullptr), {"symm_comm_device", "device"}));
  EXPECT_TRUE(fails(bad, symm_comm_barrier(nullptr, nullptr), {"symm_comm_barrier", "comm"}));
  EXPECT_TRUE(fails(bad, symm_comm_check(nullptr, &number), {"symm_comm_check", "comm"}));
  EXPECT_TRUE(fails(bad, symm_comm_abort(nullptr), {"symm_comm_abort", "comm"}));
  EXPECT_TRUE(fails(bad, symm_comm_nccl(nullptr, &pointer), {"symm_comm_nccl", "comm"}));
  EXPECT_TRUE(fails(bad, symm_comm_nccl(comm.get(), nullptr), {"symm_comm_nccl", "nccl"}));
  EXPECT_TRUE(
      fails(bad, symm_comm_split(nullptr, 0, 0, nullptr, &out), {"symm_comm_split", "comm"}));
  EXPECT_TRUE(
      fails(bad, symm_comm_split(comm.get(), 0, 0, nullptr, nullptr), {"symm_comm_split", "out"}));
  EXPECT_EQ(number, 42);
  EXPECT_EQ(pointer, &number);
  EXPECT_TRUE(ok(symm_comm_check(comm.get(), nullptr)));
  EXPECT_TRUE(adds_up(comm.get()));
}

TEST(Comm, FreeOfNullDoesNothing) {
  symm_comm_free(nullptr);
  symm_window_free(nullptr);
}

TEST(Comm, AWorldOfOneKnowsItself) {
  const Comm comm = create_alone();
  int32_t device = 7;
  EXPECT_TRUE(ok(symm_comm_device(comm.get(), &device)));
  EXPECT_EQ(device, SYMM_CPU);
  EXPECT_EQ(rank_of(comm.get()), 0);
  EXPECT_EQ(size_of(comm.get()), 1);
  int32_t blamed = 7;
  EXPECT_TRUE(ok(symm_comm_check(comm.get(), &blamed)));
  EXPECT_TRUE(ok(symm_comm_barrier(comm.get(), nullptr)));
  EXPECT_TRUE(adds_up(comm.get()));
}

TEST(Comm, ABarrierOfCpuRanksTakesNoStream) {
  const Comm comm = create_alone();
  int stream = 0;
  EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT, symm_comm_barrier(comm.get(), &stream),
                    {"symm_comm_barrier", "stream"}));
  EXPECT_TRUE(ok(symm_comm_barrier(comm.get(), nullptr)));
}

TEST(Comm, CpuRanksHaveNoNcclCommunicator) {
  const Comm comm = create_alone();
  void* nccl = &nccl;
  EXPECT_TRUE(fails(SYMM_UNSUPPORTED, symm_comm_nccl(comm.get(), &nccl), {"symm_comm_nccl"}));
  EXPECT_EQ(nccl, &nccl);
}

TEST(CommSplit, RefusesABadArgumentNamingItAndStaysUsable) {
  const Comm comm = create_alone();
  symm_comm* out = comm.get();
  EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT, symm_comm_split(comm.get(), -2, 0, nullptr, &out),
                    {"symm_comm_split", "color", "-2"}));
  symm_comm_options options = comm_options();
  options.flags = 1u << 20;
  EXPECT_TRUE(
      fails(SYMM_UNSUPPORTED, symm_comm_split(comm.get(), 0, 0, &options, &out), {"flags"}));
  options = comm_options();
  options.timeout_ms = -5;
  EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT, symm_comm_split(comm.get(), 0, 0, &options, &out),
                    {"timeout_ms"}));
  EXPECT_EQ(out, comm.get());
  EXPECT_TRUE(ok(symm_comm_check(comm.get(), nullptr)));
  EXPECT_TRUE(adds_up(comm.get()));
}

// ---- symm_address_create, symm_report, symm_plan: the sizes they ask for ----

TEST(AddressCreate, SaysHowMuchItNeedsAndThenFits) {
  size_t needed = 0;
  EXPECT_TRUE(ok(symm_address_create("127.0.0.1", nullptr, 0, &needed)));
  ASSERT_GT(needed, 1u);
  ASSERT_LE(needed, size_t{SYMM_ADDRESS_SIZE});
  std::vector<char> buffer(needed + 1, '#');
  const size_t asked = needed;
  EXPECT_TRUE(ok(symm_address_create("127.0.0.1", buffer.data(), asked, &needed)));
  EXPECT_EQ(needed, asked);
  EXPECT_EQ(std::strlen(buffer.data()) + 1, needed);
  EXPECT_EQ(buffer.back(), '#');
}

TEST(AddressCreate, ABufferTooSmallIsLeftAloneAndNeededIsStillSaid) {
  char buffer[4] = "abc";
  size_t needed = 0;
  EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT, symm_address_create(nullptr, buffer, 4, &needed),
                    {"symm_address_create", "size"}));
  EXPECT_STREQ(buffer, "abc");
  EXPECT_GT(needed, 4u);
  EXPECT_LE(needed, size_t{SYMM_ADDRESS_SIZE});
}

TEST(AddressCreate, RefusesBadArguments) {
  char buffer[SYMM_ADDRESS_SIZE];
  size_t needed = 0;
  EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT, symm_address_create(nullptr, nullptr, 10, &needed),
                    {"symm_address_create", "buffer"}));
  EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT,
                    symm_address_create("no host\n", buffer, sizeof buffer, &needed), {"host"}));
  EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT, symm_address_create("", buffer, sizeof buffer, &needed),
                    {"host"}));
}

TEST(AddressCreate, EveryAddressIsANewOne) {
  char first[SYMM_ADDRESS_SIZE], second[SYMM_ADDRESS_SIZE];
  size_t needed = 0;
  ASSERT_TRUE(ok(symm_address_create(nullptr, first, sizeof first, &needed)));
  ASSERT_TRUE(ok(symm_address_create(nullptr, second, sizeof second, &needed)));
  EXPECT_STRNE(first, second);
}

TEST(Report, SaysHowMuchItNeedsAndRefusesLess) {
  const Comm comm = create_alone();
  for (const symm_comm* subject :
       {static_cast<const symm_comm*>(nullptr), static_cast<const symm_comm*>(comm.get())}) {
    size_t needed = 0;
    EXPECT_TRUE(ok(symm_report(subject, nullptr, 0, &needed)));
    ASSERT_GT(needed, 2u);
    std::vector<char> buffer(needed, '#');
    size_t again = 0;
    EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT, symm_report(subject, buffer.data(), 2, &again),
                      {"symm_report", "size"}));
    EXPECT_EQ(again, needed);
    EXPECT_EQ(buffer[0], '#');
    EXPECT_TRUE(
        fails(SYMM_INVALID_ARGUMENT, symm_report(subject, nullptr, 10, &again), {"buffer"}));
    EXPECT_TRUE(ok(symm_report(subject, buffer.data(), buffer.size(), &again)));
    EXPECT_EQ(std::strlen(buffer.data()) + 1, again);
    EXPECT_TRUE(
        fails(SYMM_INVALID_ARGUMENT, symm_report(subject, nullptr, 0, nullptr), {"needed"}));
  }
}

TEST(Plan, SaysHowMuchItNeedsAndRefusesBadArguments) {
  const Comm comm = create_alone();
  size_t needed = 0;
  const auto plan = [&](size_t count, int dtype, int op, char* buffer, size_t size) {
    return symm_plan(comm.get(), nullptr, count, static_cast<symm_dtype>(dtype),
                     static_cast<symm_op>(op), buffer, size, &needed);
  };
  EXPECT_TRUE(ok(plan(10, SYMM_FLOAT32, SYMM_SUM, nullptr, 0)));
  ASSERT_GT(needed, 2u);
  std::vector<char> buffer(needed);
  EXPECT_TRUE(ok(plan(10, SYMM_FLOAT32, SYMM_SUM, buffer.data(), buffer.size())));
  EXPECT_TRUE(
      fails(SYMM_INVALID_ARGUMENT, plan(10, SYMM_FLOAT32, SYMM_SUM, buffer.data(), 1), {"size"}));
  EXPECT_TRUE(
      fails(SYMM_INVALID_ARGUMENT, plan(10, SYMM_FLOAT32, SYMM_SUM, nullptr, 1), {"buffer"}));
  EXPECT_TRUE(fails(SYMM_UNSUPPORTED, plan(10, 77, SYMM_SUM, nullptr, 0), {"dtype", "77"}));
  EXPECT_TRUE(fails(SYMM_UNSUPPORTED, plan(10, SYMM_FLOAT32, 77, nullptr, 0), {"op", "77"}));
  EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT, plan(SIZE_MAX / 2, SYMM_FLOAT32, SYMM_SUM, nullptr, 0),
                    {"count"}));
  EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT,
                    symm_plan(nullptr, nullptr, 1, SYMM_FLOAT32, SYMM_SUM, nullptr, 0, &needed),
                    {"comm"}));
}

}  // namespace
}  // namespace symm_test
