// Calls that cannot end well: mismatches, ranks that stop or leave, faults raised from outside.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/cpu/arena.h"
#include "core/cpu/engine.h"
#include "core/cpu/fault_block.h"
#include "core/cpu/record.h"
#include "tests/support/pace.h"
#include "tests/unit/engine_group.h"

namespace symm::cpu {
namespace {

// Long enough for every rank that does call to have called, also on a loaded machine.
constexpr int kLate = 800 * symm_test::kSlowdown;
constexpr auto kSoon = std::chrono::seconds(3) * symm_test::kSlowdown;

std::vector<Call> different_calls() {
  return {
      all_reduce_of(2),
      all_reduce_of(2, SYMM_INT32),
      all_reduce_of(2, SYMM_FLOAT32, SYMM_MAX),
      all_reduce_of(0),
      all_reduce_of(60),
      all_reduce_of(3000),
      all_reduce_of(100000),
      {Form::kWindowAllReduce, SYMM_FLOAT32, SYMM_SUM, 2, 1, 0},
      {Form::kWindowAllReduce, SYMM_FLOAT32, SYMM_SUM, 2, 1, 8},
      {Form::kWindowAllReduce, SYMM_FLOAT32, SYMM_SUM, 100000, 2, 0},
      {},
      {Form::kSplit, SYMM_DTYPE_NONE, SYMM_OP_NONE, 0, 0, 0},
      {Form::kWindowAlloc, SYMM_DTYPE_NONE, SYMM_OP_NONE, 64, 0, 0},
  };
}

TEST(Engine, DifferentCallsAreAMismatchOnEveryRankWithBothCalls) {
  const std::vector<Call> calls = different_calls();
  std::mt19937_64 random(seed() + 7);
  for (const int size : {2, 3, 8}) {
    for (const Call& one : calls) {
      for (const Call& other : calls) {
        if (one == other) continue;
        Group group(options_for(size));
        const int odd = static_cast<int>(random() % static_cast<uint64_t>(size));
        const auto outcomes = group.run([&](int rank, Engine& engine) {
          engine.barrier();
          make_call(rank == odd ? one : other, engine);
        });
        expect_all(
            outcomes, SYMM_MISMATCH,
            {call_text(one), call_text(other), text("rank ", odd, " called ", call_text(one))});
        ASSERT_FALSE(HasFailure()) << call_text(one) << " against " << call_text(other);
        EXPECT_EQ(outcomes[0].message, outcomes[1].message);
        ASSERT_TRUE(group.engine(0).fault());
        EXPECT_EQ(group.engine(0).fault()->message, outcomes[0].message);
      }
    }
  }
}

TEST(Engine, CountsThatDifferOnlyAboveThe32ndBitAreAMismatch) {
  Group group(options_for(2));
  const auto outcomes = group.run([&](int rank, Engine& engine) {
    // One rank's record says 2^32 + 2 elements; its word is not posted, as it has not that memory.
    if (rank == 0) return make_call(all_reduce_of(2), engine);
    engine.publish_setup(all_reduce_of((uint64_t{1} << 32) + 2));
    while (!engine.fault()) usleep(100);
  });
  EXPECT_EQ(outcomes[0].status, SYMM_MISMATCH);
  EXPECT_NE(outcomes[0].message.find("4294967298"), std::string::npos) << outcomes[0].message;
}

TEST(Engine, AFailedCommunicatorRefusesLaterCallsAtOnce) {
  Group group(options_for(2));
  group.engine(1).raise({SYMM_ABORTED, 1, "rank 1 called symm_comm_abort"});
  const auto start = Clock::now();
  const auto outcomes = group.run([](int rank, Engine& engine) {
    if (rank == 0) engine.barrier();
    if (rank == 1) engine.publish_setup({Form::kSplit, SYMM_DTYPE_NONE, SYMM_OP_NONE, 0, 0, 0});
  });
  expect_all(outcomes, SYMM_ABORTED, {"rank 1 called symm_comm_abort"});
  EXPECT_EQ(outcomes[0].rank, 1);
  EXPECT_LT(Clock::now() - start, kSoon);
}

TEST(Engine, ATimeoutNamesTheRanksThatDidNotCall) {
  struct Case {
    int size;
    std::vector<int> missing;
    std::string names;
  };
  for (const Case& c :
       {Case{2, {1}, "rank 1,"}, Case{4, {2}, "rank 2,"}, Case{4, {0, 3}, "ranks 0 and 3,"},
        Case{9, {1, 4, 8}, "ranks 1, 4 and 8,"}}) {
    for (const size_t count : {size_t{2}, size_t{100000}}) {
      EngineOptions options = options_for(c.size);
      options.wait_timeout_ms = kLate;
      Group group(options);
      const auto start = Clock::now();
      const auto outcomes = group.run([&](int rank, Engine& engine) {
        make_call(all_reduce_of(5), engine);
        if (std::find(c.missing.begin(), c.missing.end(), rank) == c.missing.end()) {
          return make_call(all_reduce_of(count), engine);
        }
        // Not late for the wait of others, but for good.
        while (!engine.fault()) usleep(1000);
        const Fault fault = *engine.fault();
        throw Error(fault.status, fault.message, fault.rank);
      });
      expect_all(outcomes, SYMM_TIMEOUT,
                 {c.names, text(kLate, " ms"), call_text(all_reduce_of(count))});
      for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.rank, c.missing[0]);
      EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(kLate));
      EXPECT_LT(Clock::now() - start, std::chrono::milliseconds(kLate) + kSoon);
    }
  }
}

TEST(Engine, ARankThatStopsInsideACallIsNamedToo) {
  EngineOptions options = options_for(3);
  options.wait_timeout_ms = kLate;
  Group group(options);
  const auto outcomes = group.run([](int rank, Engine& engine) {
    if (rank != 1) return make_call(all_reduce_of(7), engine);
    engine.publish_setup(all_reduce_of(7));  // enters the call, posts nothing
  });
  for (const int rank : {0, 2}) {
    EXPECT_EQ(outcomes[rank].status, SYMM_TIMEOUT);
    EXPECT_EQ(outcomes[rank].rank, 1);
    EXPECT_NE(outcomes[rank].message.find("rank 1, which is in the same call"), std::string::npos)
        << outcomes[rank].message;
  }
}

TEST(Engine, ARankThatLeftFailsOnlyCallsThatNeedIt) {
  for (const int size : {2, 3, 8}) {
    Group group(options_for(size));
    const auto start = Clock::now();
    const auto outcomes = group.run([&](int rank, Engine& engine) {
      for (int i = 0; i < 5; ++i) make_call(all_reduce_of(i % 2 == 0 ? 2 : 50000), engine);
      if (rank == 1) return engine.leave();
      make_call(all_reduce_of(9), engine);
    });
    EXPECT_EQ(outcomes[1].status, SYMM_OK);
    EXPECT_TRUE(group.engine(0).has_left(1));
    EXPECT_FALSE(group.engine(1).has_left(0));
    for (int rank = 0; rank < size; ++rank) {
      if (rank == 1) continue;
      EXPECT_EQ(outcomes[rank].status, SYMM_PEER);
      EXPECT_EQ(outcomes[rank].rank, 1);
      EXPECT_NE(outcomes[rank].message.find("rank 1 left"), std::string::npos);
    }
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(10));
  }
}

TEST(Engine, LeavingRightAfterTheLastCallFailsNobody) {
  for (int round = 0; round < 60; ++round) {
    const int size = 2 + round % 7;
    Group group(options_for(size));
    expect_ok(group.run([&](int, Engine& engine) {
      make_call(all_reduce_of(round % 3 == 0 ? 2 : 5000), engine);
      make_call(all_reduce_of(round % 2 == 0 ? 70000 : 100), engine);
      engine.leave();
    }));
  }
}

TEST(Engine, RaiseFromAnotherThreadEndsWaits) {
  for (const bool asleep : {false, true}) {
    Group group(options_for(4));
    Clock::time_point raised;
    std::thread other([&] {
      usleep(asleep ? 200000 : 3000);
      raised = Clock::now();
      group.engine(2).raise({SYMM_ABORTED, 2, "rank 2 called symm_comm_abort"});
    });
    const auto outcomes = group.run([](int rank, Engine& engine) {
      if (rank != 2) make_call(all_reduce_of(10000), engine);
    });
    const auto ended = Clock::now();
    other.join();
    for (const int rank : {0, 1, 3}) {
      EXPECT_EQ(outcomes[rank].status, SYMM_ABORTED);
      EXPECT_EQ(outcomes[rank].rank, 2);
      EXPECT_EQ(outcomes[rank].message, "rank 2 called symm_comm_abort");
    }
    EXPECT_LT(ended - raised, kSoon);
  }
}

TEST(Engine, ALocalFaultEndsTheWaitsOfEveryRank) {
  Group group(options_for(3));
  std::thread helper([&] {
    usleep(20000);
    group.local_fault(0) = SYMM_PEER;
  });
  const auto outcomes = group.run([](int rank, Engine& engine) {
    if (rank != 1) engine.barrier();
  });
  helper.join();
  for (const int rank : {0, 2}) {
    EXPECT_EQ(outcomes[rank].status, SYMM_PEER);
    EXPECT_NE(outcomes[rank].message.find("SYMM_PEER"), std::string::npos)
        << outcomes[rank].message;
  }
}

TEST(Engine, TheFirstFaultWins) {
  Group group(options_for(2));
  EXPECT_FALSE(group.engine(0).fault());
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      group.engine(i % 2).raise({SYMM_PEER, i, text("fault ", i, std::string(2000, 'x'))});
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::optional<Fault> fault = group.engine(0).fault();
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->status, SYMM_PEER);
  EXPECT_EQ(fault->message.substr(0, 7), text("fault ", fault->rank));
  EXPECT_EQ(fault->message.size(), kFaultText);
  group.engine(1).raise({SYMM_ABORTED, 0, "later"});
  EXPECT_EQ(group.engine(1).fault()->message, fault->message);
}

TEST(Engine, ARaiserThatDiedWhileItWroteCostsOnlyTheText) {
  const EngineOptions options = options_for(2);
  Group group(options);
  Arena arena(group.arena(), arena_layout(options));
  // Being written, SYMM_PEER, rank 1: as raise() leaves it before the text.
  arena.fault().state = uint64_t{2} << 32 | uint64_t{8} << 8 | 1;
  const auto start = Clock::now();
  const std::optional<Fault> fault = group.engine(0).fault();
  EXPECT_LT(Clock::now() - start, kSoon);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->status, SYMM_PEER);
  EXPECT_EQ(fault->rank, 1);
  EXPECT_NE(fault->message.find("rank 1"), std::string::npos) << fault->message;
}

TEST(Engine, RecordsAreNeverReadHalfWritten) {
  Mapping memory(sizeof(Record));
  Record& record = *reinterpret_cast<Record*>(memory.data());
  EXPECT_FALSE(read(record));
  EXPECT_FALSE(has_reached(record, 0));
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (uint32_t i = 1; i < 300000; ++i) {
      publish(record, i, {Form::kWindowAllReduce, SYMM_FLOAT32, SYMM_MAX, i, i, i});
      if (i % 100 == 0) std::this_thread::yield();  // whole for a moment, also on one CPU
    }
    done = true;
  });
  uint32_t last = 0;
  int seen = 0;
  while (!done) {
    const std::optional<Published> published = read(record);
    if (!published) continue;
    if (++seen % 100 == 0) std::this_thread::yield();
    const uint64_t epoch = published->epoch;
    EXPECT_GE(epoch, last);
    last = published->epoch;
    ASSERT_EQ(published->call,
              (Call{Form::kWindowAllReduce, SYMM_FLOAT32, SYMM_MAX, epoch, epoch, epoch}));
  }
  writer.join();
  EXPECT_TRUE(has_reached(record, 299999));
  EXPECT_TRUE(has_reached(record, 299998));
  EXPECT_FALSE(has_reached(record, 300000));
  EXPECT_GT(seen, 0);
}

}  // namespace
}  // namespace symm::cpu
