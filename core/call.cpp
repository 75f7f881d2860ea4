#include "core/call.h"

#include "core/error.h"
#include "core/types.h"

namespace symm {

std::string call_text(const Call& call) {
  switch (call.form) {
    case Form::kAllReduce:
      return text("symm_all_reduce(count ", call.count, ", ", dtype_name(call.dtype), ", ",
                  op_name(call.op), ")");
    case Form::kWindowAllReduce:
      return text("symm_window_all_reduce(window ", call.window, ", offset ", call.offset,
                  ", count ", call.count, ", ", dtype_name(call.dtype), ", ", op_name(call.op),
                  ")");
    case Form::kBarrier:
      return "symm_comm_barrier()";
    case Form::kSplit:
      return "symm_comm_split()";
    case Form::kWindowAlloc:
      return text("symm_window_alloc(bytes ", call.count, ")");
    case Form::kWindowRegister:
      return text("symm_window_register(bytes ", call.count, ")");
  }
  return text("an unknown call (form ", static_cast<int>(call.form), ")");
}

}  // namespace symm
