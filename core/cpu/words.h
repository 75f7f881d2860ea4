// The 64-bit word by which a rank says "my data of this step of this call is here".
//
//   step (24 bits) << 40 | form, dtype and op (8 bits) << 32 | detail (32 bits)
//
// One comparison with the word a rank expects proves that the peer is at the same step and called
// the same thing. Steps are counted for each algorithm's memory on its own, not by the
// communicator's epoch: a place then always holds the word of the step before the awaited one (or
// the one before that, with two banks), never one that is a multiple of 2^24 away, however many
// calls went through other memory meanwhile; so the counter may wrap round. A word is never 0,
// which is what fresh memory holds.
//
// The detail is the count where that is all there is to tell and it is below 2^32. For larger
// counts and for the window form it is a hash: two different calls then agree with probability
// 2^-32.
#ifndef SYMM_CORE_CPU_WORDS_H_
#define SYMM_CORE_CPU_WORDS_H_

#include <cstdint>

#include "core/call.h"
#include "core/types.h"

namespace symm::cpu {

class CallWord {
 public:
  explicit CallWord(const Call& call) : low_(uint64_t{code(call)} << 32 | detail(call)) {}

  // The shift drops the step's upper eight bits.
  uint64_t at(uint32_t step) const { return uint64_t{step} << 40 | low_; }

 private:
  static constexpr uint32_t kKinds = kDtypeCount * kOpCount;

  // 1..60 all-reduces, 61..120 window all-reduces, 121 barriers; other forms post no words.
  static uint32_t code(const Call& call) {
    if (call.form == Form::kBarrier) return 1 + 2 * kKinds;
    const uint32_t kind =
        static_cast<uint32_t>(call.dtype) * kOpCount + static_cast<uint32_t>(call.op);
    return 1 + kind + (call.form == Form::kWindowAllReduce ? kKinds : 0);
  }

  static uint32_t detail(const Call& call) {
    if (call.form == Form::kWindowAllReduce) {
      return static_cast<uint32_t>(mix(call.count + mix(call.offset + mix(call.window))));
    }
    const auto high = static_cast<uint32_t>(call.count >> 32);
    const auto low = static_cast<uint32_t>(call.count);
    return high == 0 ? low : low ^ static_cast<uint32_t>(mix(high));
  }

  // A permutation of 64-bit values in which every bit of the argument reaches every bit.
  static uint64_t mix(uint64_t value) {
    value += 0x9e3779b97f4a7c15;
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
    value = (value ^ value >> 27) * 0x94d049bb133111eb;
    return value ^ value >> 31;
  }

  uint64_t low_;
};

}  // namespace symm::cpu

#endif  // SYMM_CORE_CPU_WORDS_H_
