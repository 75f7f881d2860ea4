#include "core/cpu/table.h"

#include <algorithm>

namespace symm::cpu {
namespace {

constexpr size_t kKi = 1024;

// From so many ranks on, boxes (two for each pair) give way to slots.
constexpr int kSlotsFrom = 8;

// The largest message of which every rank reduces everything.
size_t one_shot_limit(int size, bool oversubscribed, bool narrow) {
  if (size == 2) return narrow ? 2 * kKi : 32 * kKi;
  // Fewer steps are worth more where each step is a round of context switches.
  if (oversubscribed) return size < kSlotsFrom ? 4 * kKi : kKi;
  if (size < 5) return narrow ? 2 * kKi : 4 * kKi;
  return size < kSlotsFrom ? kKi : kKi / 4;
}

}  // namespace

const char* algorithm_name(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kCopy:
      return "copy";
    case Algorithm::kBoxInline:
      return "box_inline";
    case Algorithm::kBoxOneShot:
      return "box_one_shot";
    case Algorithm::kBoxReduceScatter:
      return "box_reduce_scatter";
    case Algorithm::kLineInline:
      return "line";
    case Algorithm::kLineOneShot:
      return "line_one_shot";
    case Algorithm::kSlotReduceScatter:
      return "slot_reduce_scatter";
  }
  return "unknown";
}

ArenaAreas wanted_areas(int size, bool oversubscribed) {
  ArenaAreas areas;
  if (size == 2) {
    areas.box_payload = 128 * kKi;
  } else if (size > 2) {
    areas.line_payload = one_shot_limit(size, oversubscribed, false);
    if (size < kSlotsFrom) {
      areas.box_payload = 64 * kKi;
    } else {
      areas.slot_operand = 256 * kKi;
    }
  }
  return areas;
}

void Table::Rows::add(size_t up_to_bytes, Algorithm algorithm) {
  // Too small an area leaves a row nothing to do.
  if (count != 0 && up_to_bytes <= rows[count - 1].up_to_bytes) return;
  rows[count++] = {up_to_bytes, algorithm};
}

Table::Rows Table::rows_for(int size, bool oversubscribed, const ArenaAreas& areas, bool narrow) {
  Rows rows;
  if (size == 1) {
    rows.add(SIZE_MAX, Algorithm::kCopy);
    return rows;
  }
  const size_t one_shot = one_shot_limit(size, oversubscribed, narrow);
  if (size == 2) {
    rows.add(kInlineBytes, Algorithm::kBoxInline);
    rows.add(std::min(one_shot, areas.box_payload), Algorithm::kBoxOneShot);
  } else {
    rows.add(kInlineBytes, Algorithm::kLineInline);
    rows.add(std::min(one_shot, areas.line_payload), Algorithm::kLineOneShot);
  }
  rows.add(SIZE_MAX,
           areas.box_payload != 0 ? Algorithm::kBoxReduceScatter : Algorithm::kSlotReduceScatter);
  return rows;
}

Table::Table(int size, bool oversubscribed, const ArenaAreas& areas)
    : wide_(rows_for(size, oversubscribed, areas, false)),
      narrow_(rows_for(size, oversubscribed, areas, true)) {}

}  // namespace symm::cpu
