// Pair boxes: the all-reduce of few ranks.
//
// Every pair of ranks {r < s} has two boxes, each a line (a word and 56 bytes) and a data area,
// whose writer alternates: in step t rank r writes box t mod 2 and s the other one, so the reader
// of a box is its next writer. A line moves from core to core once a step, and nobody ever stores
// to a line that its peer holds shared; ordinary slots cost twice that.
//
// Proof. Steps are those of this class only (steps of other algorithms between them do not matter);
// all ranks count them alike, because they follow from calls that words proved equal. Call X(t) the
// box a rank writes in step t, Y(t) the one it reads; X(t+1) is Y(t).
// 1. Data before word: X(t)'s data and word have one writer in step t, which stores the word last
//    with release; the reader loads the word with acquire and only then reads data.
// 2. No overwriting: the peer writes Y(t) in step t, I read it, and I write it in step t+1, after
//    my read in program order. The peer writes it again in step t+2, after it has acquired my word
//    of step t+1, which I released after that read and those writes. So two accesses to one byte by
//    two ranks, one of them a write, are always ordered. No exit barrier and no banks are needed,
//    and a rank is at most one step ahead.
// 3. Nothing stale: until the peer has written Y(t), it holds my own word of step t-1, or 0 before
//    its first use. Neither equals a word of step t, as t-1 and t differ modulo 2^24 and words are
//    not 0.
// 4. In place: one-shot reads an element of the input before it writes it. Reduce-scatter writes my
//    share of a chunk's output after it has read that share of the input, and another rank's share
//    after that share of the input was sent.
// 5. Same bits: an element is either computed by one rank, or by all with the same operands in the
//    same order.
//
// Reduce-scatter and all-gather takes two steps a chunk, in which each pass over a box takes
// what is in it and puts what goes back, while its lines are in this core's cache:
//   step t    send every peer its share of the operand
//   step t+1  sum my share from all boxes; the sum goes to the output and back into those boxes
//             take the sums of the others' shares; their operand of the next chunk goes back (t+2)
#ifndef SYMM_CORE_CPU_BOXES_H_
#define SYMM_CORE_CPU_BOXES_H_

#include <cstdint>
#include <vector>

#include "core/cpu/arena.h"
#include "core/cpu/float_environment.h"
#include "core/cpu/reduction.h"
#include "core/cpu/wait.h"

namespace symm::cpu {

class Boxes {
 public:
  Boxes(const Arena& arena, uint32_t first_step, Waiter& waiter);

  // Two ranks only. The first carries at most kInlineBytes, the second at most box_payload.
  void one_shot_inline(const Reduction& reduction);
  void one_shot(const Reduction& reduction);

  // Any number of ranks, any size.
  void reduce_scatter(const Reduction& reduction);

 private:
  const Box& to(int peer, uint32_t step) const {
    return boxes_[2 * static_cast<size_t>(peer) + ((step + (peer < waiter_.rank())) & 1)];
  }
  const Box& from(int peer, uint32_t step) const { return to(peer, step + 1); }

  void send(const Reduction& reduction, const Chunks& chunks, uint32_t step);
  void sum(const Reduction& reduction, const Chunks& chunks, size_t chunk, uint32_t step);
  void collect(const Reduction& reduction, const Chunks& chunks, size_t chunk, uint32_t step);

  Waiter& waiter_;
  const size_t most_;                 // bytes a chunk
  uint32_t step_;                     // the next one
  std::vector<Box> boxes_;            // two a peer
  std::vector<const void*> sources_;  // in rank order
};

// Inline: its time is the work between two cache misses.
inline void Boxes::one_shot_inline(const Reduction& reduction) {
  const int me = waiter_.rank();
  const int peer = 1 - me;
  const uint32_t step = step_++;
  const Box& mine = to(peer, step);
  const Box& theirs = from(peer, step);
  const uint64_t word = reduction.word.at(step);
  // Before the stores to the box: a kernel that loads both pointers at once must else wait until
  // the box's line, which comes from the other core, has let these stores through.
  const void* sources[2];
  sources[me] = reduction.input;
  sources[peer] = theirs.line->payload;
  copy_short(mine.line->payload, reduction.input, reduction.bytes);
  waiter_.post(mine.line->word, word, peer);
  waiter_.publish();
  const FloatEnvironment environment;
  waiter_.await(theirs.line->word, word, peer);
  if (reduction.bytes == 0) return;
  reduction.reduce(reduction.output, nullptr, sources, 2, reduction.bytes);
}

}  // namespace symm::cpu

#endif  // SYMM_CORE_CPU_BOXES_H_
