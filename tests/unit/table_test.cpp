// Which algorithm a call takes.
#include "core/cpu/table.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

#include "core/cpu/engine.h"
#include "tests/unit/engine_group.h"

namespace symm::cpu {
namespace {

TEST(Table, CoversEverySizeWithRisingLimits) {
  for (const int size : {1, 2, 3, 5, 8, 64}) {
    Group group(options_for(size));
    const auto rows = group.engine(0).table();
    ASSERT_FALSE(rows.empty());
    size_t last = 0;
    for (const Engine::TableRow& row : rows) {
      EXPECT_GT(row.up_to_bytes, last);
      last = row.up_to_bytes;
      if (row.up_to_bytes != SIZE_MAX) {
        EXPECT_EQ(group.engine(0).plan(all_reduce_of(row.up_to_bytes / 4)).algorithm,
                  row.algorithm);
        EXPECT_NE(group.engine(0).plan(all_reduce_of(row.up_to_bytes / 4 + 1)).algorithm,
                  row.algorithm);
      }
    }
    EXPECT_EQ(last, SIZE_MAX);
    EXPECT_EQ(group.engine(0).plan(all_reduce_of(uint64_t{1} << 40)).algorithm,
              rows.back().algorithm);
  }
}

TEST(Table, TakesTheExpectedAlgorithms) {
  Group two(options_for(2));
  EXPECT_EQ(two.engine(0).plan(all_reduce_of(2)).algorithm, "box_inline");
  EXPECT_EQ(two.engine(0).plan(all_reduce_of(256)).algorithm, "box_one_shot");
  EXPECT_EQ(two.engine(0).plan(all_reduce_of(1 << 20)).algorithm, "box_reduce_scatter");
  EXPECT_EQ(two.engine(0).plan({}).algorithm, "box_inline");
  Group many(options_for(16));
  EXPECT_EQ(many.engine(0).plan(all_reduce_of(2)).algorithm, "line");
  EXPECT_EQ(many.engine(0).plan(all_reduce_of(1 << 20)).algorithm, "slot_reduce_scatter");
  Group one(options_for(1));
  EXPECT_EQ(one.engine(0).plan(all_reduce_of(1 << 20)).algorithm, "copy");
}

TEST(Table, APlanSaysWhatScratchAndCpusCost) {
  EngineOptions options = options_for(2);
  options.scratch_bytes = 8192;
  Group tight(options);
  const Engine::Plan plan = tight.engine(0).plan(all_reduce_of(8000));
  EXPECT_EQ(plan.algorithm, "box_reduce_scatter");
  ASSERT_EQ(plan.faster.size(), 1u);
  EXPECT_EQ(plan.faster[0].algorithm, "box_one_shot");
  EXPECT_NE(plan.faster[0].why_not.find("scratch_bytes 8192"), std::string::npos);

  options = options_for(4);
  options.oversubscribed = true;
  Group crowded(options);
  const Engine::Plan slow = crowded.engine(0).plan(all_reduce_of(2));
  ASSERT_FALSE(slow.faster.empty());
  EXPECT_NE(slow.faster[0].why_not.find("outnumber the CPUs"), std::string::npos);
}

}  // namespace
}  // namespace symm::cpu
