// symm_report and symm_plan are JSON that programs can rely on.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "capi/symm.h"
#include "tests/support/calls.h"
#include "tests/support/json.h"
#include "tests/support/reference.h"

namespace symm_test {
namespace {

std::string report_text(const symm_comm* comm) {
  size_t needed = 0;
  EXPECT_TRUE(ok(symm_report(comm, nullptr, 0, &needed)));
  std::string text(needed + 256, '\0');  // it may have grown since
  EXPECT_TRUE(ok(symm_report(comm, text.data(), text.size(), &needed)));
  text.resize(needed - 1);
  return text;
}

Json plan(const symm_comm* comm, const symm_window* window, size_t count, symm_dtype dtype,
          symm_op op) {
  size_t needed = 0;
  EXPECT_TRUE(ok(symm_plan(comm, window, count, dtype, op, nullptr, 0, &needed)));
  std::string text(needed, '\0');
  EXPECT_TRUE(ok(symm_plan(comm, window, count, dtype, op, text.data(), text.size(), &needed)));
  text.resize(needed - 1);
  return parse_json(text);
}

TEST(JsonReader, RefusesWhatIsNotJson) {
  EXPECT_EQ(parse_json(" {\"a\": [1, -2.5e3, \"x\\n\\u0041\", true, null]} ")["a"].items[1].number,
            -2500);
  for (const char* text :
       {"", "{", "{\"a\":1,}", "[1,]", "01", "+1", "1.", ".5", "'a'", "\"a", "\"\t\"", "tru",
        "{a:1}", "{\"a\":1 \"b\":2}", "1 2", "{\"a\":1,\"a\":2}", "nan", "\"\\x\""}) {
    EXPECT_ANY_THROW(parse_json(text)) << text;
  }
}

TEST(Report, OfTheProcessTellsLibraryAndMachine) {
  const Json report = parse_json(report_text(nullptr));
  EXPECT_EQ(report.kind, Json::Kind::kObject);
  EXPECT_EQ(report["schema"].number, 1);
  EXPECT_TRUE(report.has("library"));
  EXPECT_EQ(report["library"]["version"].string, std::to_string(SYMM_VERSION_MAJOR) + "." +
                                                     std::to_string(SYMM_VERSION_MINOR) + "." +
                                                     std::to_string(SYMM_VERSION_PATCH));
}

TEST(Report, OfACommunicatorTellsItsRanksAndAlgorithms) {
  run(mixed(2, 2), [](Rank& rank) {
    const Comm comm = create(rank, "a \"quoted\" name\\with\ttrouble");
    ASSERT_NE(comm, nullptr);
    const Json report = parse_json(report_text(comm.get()));
    EXPECT_EQ(report["schema"].number, 1);
    EXPECT_TRUE(report.has("library"));
    const Json& told = report["communicator"];
    ASSERT_EQ(told.kind, Json::Kind::kObject);
    EXPECT_EQ(told["rank"].number, rank.rank);
    EXPECT_EQ(told["size"].number, rank.size);
    EXPECT_EQ(told["device"].string, "cpu");
    EXPECT_EQ(told["error"].kind, Json::Kind::kNull);
    EXPECT_EQ(told["peers"].items.size(), static_cast<size_t>(rank.size));
    EXPECT_FALSE(told["algorithms"].items.empty());
    EXPECT_TRUE(ok(symm_comm_barrier(comm.get(), nullptr)));
  });
}

TEST(Report, HasTheStickyErrorOfAFailedCommunicator) {
  run(processes(2), [](Rank& rank) {
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    float value = 1;
    const auto count = static_cast<size_t>(1 - rank.rank);
    EXPECT_TRUE(fails(SYMM_MISMATCH, symm_all_reduce(comm.get(), &value, &value, count,
                                                     SYMM_FLOAT32, SYMM_SUM, nullptr)));
    const Json report = parse_json(report_text(comm.get()));
    const Json& error = report["communicator"]["error"];
    ASSERT_EQ(error.kind, Json::Kind::kObject);
    EXPECT_EQ(error["status"].string, "SYMM_MISMATCH");
    EXPECT_TRUE(mentions_all(error["message"].string, {"count 0", "count 1"}));
    EXPECT_TRUE(error.has("rank"));
  });
}

TEST(Report, HasARefusedCallsMessageNowhereForGood) {
  const Comm comm = create_alone();
  int stream = 0;
  EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT, symm_comm_barrier(comm.get(), &stream)));
  EXPECT_EQ(parse_json(report_text(comm.get()))["communicator"]["error"].kind, Json::Kind::kNull);
}

TEST(Plan, NamesAnAlgorithmForEveryCallAndTheSameOnEveryRank) {
  for (const Layout layout : {processes(1), processes(2), threads(5), threads(12)}) {
    const auto given = run(layout, [](Rank& rank) {
      const Comm comm = create(rank);
      ASSERT_NE(comm, nullptr);
      const Window window = alloc(comm.get(), 64);
      for (symm_dtype dtype : kAllDtypes) {
        for (size_t count :
             {size_t{0}, size_t{1}, size_t{100}, size_t{10000}, size_t{1} << 24, size_t{1} << 33}) {
          const Json told = plan(comm.get(), nullptr, count, dtype, SYMM_SUM);
          EXPECT_FALSE(told["algorithm"].string.empty());
          EXPECT_FALSE(told["reason"].string.empty());
          EXPECT_EQ(told["blocks"].kind, Json::Kind::kNumber);
          EXPECT_EQ(told["threads"].kind, Json::Kind::kNumber);
          EXPECT_EQ(told["faster"].kind, Json::Kind::kArray);
          for (const Json& other : told["faster"].items) {
            EXPECT_FALSE(other["algorithm"].string.empty());
            EXPECT_FALSE(other["why_not"].string.empty());
          }
          rank.give(told["algorithm"].string);
        }
      }
      EXPECT_FALSE(
          plan(comm.get(), window.get(), 4, SYMM_FLOAT32, SYMM_SUM)["algorithm"].string.empty());
      EXPECT_TRUE(ok(symm_comm_barrier(comm.get(), nullptr)));
    });
    for (const auto& of_rank : given) EXPECT_EQ(of_rank, given[0]);
  }
}

TEST(Report, NeverIsCutShortWhereItGrowsBetweenTheTwoCalls) {
  run(processes(2), [](Rank& rank) {
    const Comm comm = create(rank);
    ASSERT_NE(comm, nullptr);
    size_t needed = 0;
    EXPECT_TRUE(ok(symm_report(comm.get(), nullptr, 0, &needed)));
    std::vector<char> buffer(needed, '#');
    // Both have asked before either aborts. The barrier itself may end by that abort on rank 1.
    symm_comm_barrier(comm.get(), nullptr);
    if (rank.rank == 0) {
      EXPECT_TRUE(ok(symm_comm_abort(comm.get())));
    }
    while (symm_comm_check(comm.get(), nullptr) == SYMM_OK) {
    }
    // The sticky error is in it now: it no longer fits, and says so.
    size_t now_needed = 0;
    EXPECT_TRUE(fails(SYMM_INVALID_ARGUMENT,
                      symm_report(comm.get(), buffer.data(), buffer.size(), &now_needed)));
    EXPECT_GT(now_needed, needed);
    EXPECT_EQ(buffer[0], '#');
  });
}

}  // namespace
}  // namespace symm_test
