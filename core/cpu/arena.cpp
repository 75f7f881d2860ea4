#include "core/cpu/arena.h"

#include <algorithm>
#include <utility>

#include "core/cpu/fault_block.h"
#include "core/cpu/record.h"
#include "core/cpu/table.h"

namespace symm::cpu {
namespace {

// What an area shrinks to before scratch_bytes is refused: boxes of a page, slots of some lines.
constexpr size_t kLeastBox = 2048;
constexpr size_t kLeastSlot = 4096;

ArenaLayout lay_out(int size, const ArenaAreas& areas) {
  const auto ranks = static_cast<size_t>(size);
  ArenaLayout layout;
  layout.size = size;
  layout.areas = areas;
  layout.slot_result = round_up((areas.slot_operand + ranks - 1) / ranks, kLineBytes);

  size_t end = 0;
  const auto place = [&end](size_t bytes, size_t alignment) {
    const size_t offset = round_up(end, alignment);
    end = offset + bytes;
    return offset;
  };
  layout.fault = place(sizeof(FaultBlock), kLineBytes);
  layout.doorbells = place(ranks * sizeof(std::atomic<uint32_t>), kLineBytes);
  layout.records = place(ranks * sizeof(Record), kLineBytes);
  if (size > 2) layout.lines = place(2 * ranks * sizeof(WordLine), kLineBytes);
  if (areas.slot_operand != 0) layout.slot_words = place(ranks * sizeof(SlotWords), kLineBytes);
  if (areas.line_payload != 0) {
    layout.line_payloads = place(2 * ranks * areas.line_payload, kLineBytes);
  }
  if (areas.box_payload != 0) {
    layout.boxes = place(ranks * (ranks - 1) * layout.box_stride(), kPageBytes);
  }
  if (areas.slot_operand != 0) layout.slots = place(ranks * layout.slot_stride(), kPageBytes);
  layout.total = round_up(end, kPageBytes);
  return layout;
}

// Halves one area without going below its least size, in whole lines.
bool halve(size_t* area, size_t least) {
  if (*area <= least) return false;
  *area = std::max(round_up(*area / 2, kLineBytes), least);
  return true;
}

}  // namespace

ArenaLayout arena_layout(const EngineOptions& options) {
  ArenaAreas areas = wanted_areas(options.size, options.oversubscribed);
  for (;;) {
    const ArenaLayout layout = lay_out(options.size, areas);
    const auto ranks = static_cast<size_t>(options.size);
    const size_t share = (layout.total + ranks - 1) / ranks;
    if (share <= options.scratch_bytes) return layout;
    const bool boxes = halve(&areas.box_payload, kLeastBox);
    const bool slots = halve(&areas.slot_operand, kLeastSlot);
    const bool lines = halve(&areas.line_payload, kLineBytes);
    if (!boxes && !slots && !lines) {
      throw Error(SYMM_INVALID_ARGUMENT,
                  text("scratch_bytes ", options.scratch_bytes, " is too little for ", options.size,
                       " ranks; give at least ", share, ", or 0 for the default"));
    }
  }
}

size_t arena_bytes(const EngineOptions& options) { return arena_layout(options).total; }

FaultBlock& Arena::fault() const { return *at<FaultBlock>(layout_.fault); }

Record& Arena::record(int rank) const { return at<Record>(layout_.records)[rank]; }

Box Arena::box(int a, int b, int which) const {
  const auto low = static_cast<size_t>(std::min(a, b));
  const auto high = static_cast<size_t>(std::max(a, b));
  // Pairs in the order {0,1}, {0,2}, ..., {1,2}, ...
  const size_t pair = low * (2 * static_cast<size_t>(size()) - low - 1) / 2 + (high - low - 1);
  const size_t offset =
      layout_.boxes + (2 * pair + static_cast<size_t>(which)) * layout_.box_stride();
  return {at<WordLine>(offset), base_ + offset + kLineBytes};
}

}  // namespace symm::cpu
