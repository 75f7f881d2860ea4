// Which algorithm an all-reduce takes: a pure function of what every rank of a communicator knows.
#ifndef SYMM_CORE_CPU_TABLE_H_
#define SYMM_CORE_CPU_TABLE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "capi/symm.h"
#include "core/cpu/arena.h"

namespace symm::cpu {

enum class Algorithm : uint8_t {
  kCopy,              // one rank
  kBoxInline,         // two ranks, payload in the word's line
  kBoxOneShot,        // two ranks, each reduces everything
  kBoxReduceScatter,  // pair boxes, each rank reduces its share
  kLineInline,        // a line a rank, payload in it
  kLineOneShot,       // a line a rank, payload apart, each reduces everything
  kSlotReduceScatter  // a slot a rank, each rank reduces its share
};

const char* algorithm_name(Algorithm algorithm);  // "box_inline"

// The areas that measured best for so many ranks; those that the table does not use are 0.
ArenaAreas wanted_areas(int size, bool oversubscribed);

class Table {
 public:
  struct Row {
    size_t up_to_bytes;  // inclusive; SIZE_MAX in the last row
    Algorithm algorithm;
  };

  Table(int size, bool oversubscribed, const ArenaAreas& areas);

  Algorithm choose(size_t bytes, symm_dtype dtype) const {
    const Rows& rows = is_narrow_float(dtype) ? narrow_ : wide_;
    size_t i = 0;
    while (bytes > rows.rows[i].up_to_bytes) ++i;
    return rows.rows[i].algorithm;
  }

  std::span<const Row> rows(symm_dtype dtype) const {
    const Rows& rows = is_narrow_float(dtype) ? narrow_ : wide_;
    return {rows.rows.data(), rows.count};
  }

 private:
  struct Rows {
    std::array<Row, 4> rows{};
    size_t count = 0;
    void add(size_t up_to_bytes, Algorithm algorithm);
  };

  // 8- and 16-bit floats are bound by arithmetic, which reduce-scatter divides among the ranks:
  // they take it from smaller messages on.
  static bool is_narrow_float(symm_dtype dtype) {
    return dtype == SYMM_BFLOAT16 || dtype == SYMM_FLOAT16 || dtype == SYMM_FLOAT8_E4M3 ||
           dtype == SYMM_FLOAT8_E5M2;
  }

  static Rows rows_for(int size, bool oversubscribed, const ArenaAreas& areas, bool narrow);

  Rows wide_;
  Rows narrow_;
};

}  // namespace symm::cpu

#endif  // SYMM_CORE_CPU_TABLE_H_
