// What a rank called: the thing that must be the same on every rank, and that peers compare.
#ifndef SYMM_CORE_CALL_H_
#define SYMM_CORE_CALL_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "capi/symm.h"

namespace symm {

// Every collective call of a communicator, set-up included, has a form; they share one epoch
// counter, so that a rank in an all-reduce can see that its peer is in symm_window_alloc instead.
enum class Form : uint8_t {
  kAllReduce = 0,
  kWindowAllReduce = 1,
  kBarrier = 2,
  kSplit = 3,
  kWindowAlloc = 4,
  kWindowRegister = 5,
};

struct Call {
  Form form = Form::kBarrier;
  symm_dtype dtype = SYMM_DTYPE_NONE;  // all-reduces only
  symm_op op = SYMM_OP_NONE;           // all-reduces only
  uint64_t count = 0;                  // elements; bytes for window calls
  uint64_t window = 0;                 // kWindowAllReduce: the window's number in its communicator
  uint64_t offset = 0;                 // kWindowAllReduce: bytes

  bool operator==(const Call&) const = default;
};

// "symm_all_reduce(count 4, float32, sum)"
std::string call_text(const Call& call);

}  // namespace symm

#endif  // SYMM_CORE_CALL_H_
