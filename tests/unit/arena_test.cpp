// Where everything lies in the memory that the ranks of an engine share.
#include "core/cpu/arena.h"

#include <gtest/gtest.h>

#include <cstddef>

#include "core/cpu/fault_block.h"
#include "core/cpu/record.h"
#include "tests/unit/engine_group.h"

namespace symm::cpu {
namespace {

TEST(Arena, LaysOutUpToAThousandRanksWithoutOverlap) {
  for (const bool oversubscribed : {false, true}) {
    for (const int size : {1, 2, 3, 4, 7, 8, 9, 16, 64, 128, 1000, 1024}) {
      EngineOptions options = options_for(size);
      options.oversubscribed = oversubscribed;
      const ArenaLayout layout = arena_layout(options);
      EXPECT_LE(layout.total, options.scratch_bytes * static_cast<size_t>(size));
      EXPECT_EQ(layout.total, arena_bytes(options));
      EXPECT_EQ(layout.total % kPageBytes, 0u);
      const size_t base = 1 << 20;
      const Arena arena(reinterpret_cast<std::byte*>(base), layout);
      const auto at = [base](const void* p) { return reinterpret_cast<size_t>(p) - base; };
      // Ranges in the order of the layout: each starts where the one before has ended.
      size_t end = 0;
      const auto next = [&end, &at](const void* p, size_t bytes) {
        EXPECT_GE(at(p), end);
        end = at(p) + bytes;
      };
      next(&arena.fault(), sizeof(FaultBlock));
      for (int r = 0; r < size; ++r) next(&arena.doorbell(r), sizeof(uint32_t));
      for (int r = 0; r < size; ++r) next(&arena.record(r), sizeof(Record));
      if (size > 2) {
        for (int bank = 0; bank < 2; ++bank) {
          for (int r = 0; r < size; ++r) next(&arena.line(bank, r), sizeof(WordLine));
        }
      }
      if (layout.areas.slot_operand != 0) {
        for (int r = 0; r < size; ++r) next(&arena.slot_words(r), sizeof(SlotWords));
      }
      if (layout.areas.line_payload != 0) {
        for (int bank = 0; bank < 2; ++bank) {
          for (int r = 0; r < size; ++r)
            next(arena.line_payload(bank, r), layout.areas.line_payload);
        }
      }
      if (layout.areas.box_payload != 0) {
        for (int a = 0; a < size; ++a) {
          for (int b = a + 1; b < size; ++b) {
            for (int which = 0; which < 2; ++which) {
              const Box box = arena.box(b, a, which);
              EXPECT_EQ(box.line, arena.box(a, b, which).line);
              next(box.line, sizeof(WordLine));
              next(box.data, layout.areas.box_payload);
            }
          }
        }
      }
      if (layout.areas.slot_operand != 0) {
        for (int r = 0; r < size; ++r) {
          for (int bank = 0; bank < 2; ++bank)
            next(arena.slot_operand(bank, r), layout.areas.slot_operand);
          for (int bank = 0; bank < 2; ++bank) next(arena.slot_result(bank, r), layout.slot_result);
        }
      }
      EXPECT_LE(end, layout.total);
    }
  }
}

TEST(Arena, IsSmallForFewRanks) {
  EXPECT_LE(arena_bytes(options_for(1)), size_t{8} << 10);
  EXPECT_LE(arena_bytes(options_for(2)), size_t{2} << 20);
  EXPECT_LE(arena_bytes(options_for(4)), size_t{4} << 20);
  EXPECT_LE(arena_bytes(options_for(64)), size_t{64} << 20);
}

TEST(Arena, IsTheSameForEveryRank) {
  for (int rank = 0; rank < 5; ++rank) {
    EngineOptions options = options_for(5);
    options.rank = rank;
    EXPECT_EQ(arena_bytes(options), arena_bytes(options_for(5)));
  }
}

}  // namespace
}  // namespace symm::cpu
