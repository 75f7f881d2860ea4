// One line a rank and bank: barriers and the all-reduce of tiny messages among many ranks. Every
// rank writes its own operand once and reads everybody's; payloads beyond 56 bytes lie apart from
// the words, so that words of all ranks are close together.
//
// Proof. Steps are those of this class only, one a call, counted alike by all ranks; step t uses
// bank t mod 2.
// 1. Data before word: as in boxes.h, release by the only writer, acquire by each reader.
// 2. No overwriting: a rank writes its place of step t again in step t+2. It has then finished step
//    t+1, so has acquired every other rank's word of step t+1, which that rank released after its
//    reads of step t. One bank would not do: a rank that has seen all words of step t knows that
//    others have written, not that they have read.
// 3. Nothing stale: before its word of step t a place holds that of step t-2, or 0.
// 4. In place: an element of the input is read, by the kernel itself, before it is written.
// 5. Same bits: every rank gives the same operands to one function in rank order.
#ifndef SYMM_CORE_CPU_LINES_H_
#define SYMM_CORE_CPU_LINES_H_

#include <cstdint>
#include <vector>

#include "core/cpu/arena.h"
#include "core/cpu/reduction.h"
#include "core/cpu/wait.h"

namespace symm::cpu {

class Lines {
 public:
  Lines(const Arena& arena, uint32_t first_step, Waiter& waiter);

  // At most line_payload bytes.
  void one_shot(const Reduction& reduction);

 private:
  const Arena arena_;
  Waiter& waiter_;
  uint32_t step_;  // the next one
  std::vector<const void*> sources_;
};

}  // namespace symm::cpu

#endif  // SYMM_CORE_CPU_LINES_H_
