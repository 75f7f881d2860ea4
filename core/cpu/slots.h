// One slot a rank, reduce-scatter and all-gather: the all-reduce of many ranks. A rank copies a
// chunk of its operand into its slot; each rank sums its own share of everybody's chunk into its
// result; all copy all results. Per chunk a rank awaits each peer twice, and unlike boxes, whose
// number grows with the square of the ranks, a slot is one place to write and few places to read.
//
// Operands and results have two banks, each with a word of its own. Step t, one a chunk, uses bank
// t mod 2, and the operand of step t+1 is sent before the sums of step t are formed:
//   send(t+1); sum(t): await operands t, write and post result t; collect(t): await results t
//
// Proof. Steps are those of this class only, counted alike by all ranks. In the program order of
// every rank send(t+1) comes after collect(t-1), and collect(t) after sum(t), within a call and
// from one call to the next.
// 1. Data before word: as in boxes.h, release by the only writer, acquire by each reader.
// 2. Operands are not overwritten: I write operand bank t mod 2 again in send(t+2), after
// collect(t),
//    in which I acquired every rank's result word of step t, released after that rank's reads of
//    operands t. So neither data nor word of an operand changes before all have read it.
// 3. Results are not overwritten: I write result bank t mod 2 again in sum(t+2), after I acquired
//    every rank's operand word of step t+2, released after that rank's collect(t).
// 4. Nothing stale: before its word of step t a place holds that of step t-2, or 0.
// 5. In place: chunk t+1 of the input is sent before anything of it is written; sum(t) writes my
// share
//    of chunk t, reading the same elements of the input; collect(t) writes the other shares, which
//    were sent. My own share is summed from the input, not from my slot.
// 6. Same bits: every element is computed by one rank.
#ifndef SYMM_CORE_CPU_SLOTS_H_
#define SYMM_CORE_CPU_SLOTS_H_

#include <cstdint>
#include <vector>

#include "core/cpu/arena.h"
#include "core/cpu/reduction.h"
#include "core/cpu/wait.h"

namespace symm::cpu {

class Slots {
 public:
  Slots(const Arena& arena, uint32_t first_step, Waiter& waiter);

  // Any number of ranks, any size.
  void reduce_scatter(const Reduction& reduction);

 private:
  void send(const Reduction& reduction, const Chunks& chunks, size_t chunk, uint32_t step);
  void sum(const Reduction& reduction, const Chunks& chunks, size_t chunk, uint32_t step);
  void collect(const Reduction& reduction, const Chunks& chunks, size_t chunk, uint32_t step);

  const Arena arena_;
  Waiter& waiter_;
  uint32_t step_;  // the next one
  std::vector<const void*> sources_;
};

}  // namespace symm::cpu

#endif  // SYMM_CORE_CPU_SLOTS_H_
