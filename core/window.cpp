#include "core/window.h"

#include "core/error.h"
#include "core/types.h"

namespace symm {

void check_dtype_and_op(symm_dtype dtype, symm_op op) {
  if (dtype_size(dtype) == 0) {
    throw Error(SYMM_UNSUPPORTED, text("dtype ", static_cast<int>(dtype),
                                       " is not known to this version of symm; known are 0..",
                                       kDtypeCount - 1, " (symm_dtype in symm.h)"));
  }
  if (!op_known(op)) {
    throw Error(SYMM_UNSUPPORTED, text("op ", static_cast<int>(op),
                                       " is not known to this version of symm; known are 0..",
                                       kOpCount - 1, " (symm_op in symm.h)"));
  }
}

size_t checked_bytes(size_t count, symm_dtype dtype) {
  const size_t size = dtype_size(dtype);
  if (count > static_cast<size_t>(PTRDIFF_MAX) / size) {
    throw Error(SYMM_INVALID_ARGUMENT, text("count ", count, " of ", dtype_name(dtype),
                                            " is more memory than there can be"));
  }
  return count * size;
}

void check_pointer(const char* name, const void* pointer, size_t bytes, size_t alignment) {
  if (bytes == 0) return;
  if (pointer == nullptr) {
    throw Error(SYMM_INVALID_ARGUMENT, text(name, " is NULL with a count above 0"));
  }
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  if (address % alignment != 0) {
    throw Error(
        SYMM_INVALID_ARGUMENT,
        text(name, " ", pointer, " is not aligned to its elements of ", alignment, " bytes"));
  }
  if (address > UINTPTR_MAX - bytes) {
    throw Error(SYMM_INVALID_ARGUMENT, text(name, " ", pointer, " with ", bytes,
                                            " bytes reaches past the end of the address space"));
  }
}

void check_overlap(const char* input_name, const void* input, const void* output, size_t bytes) {
  if (bytes == 0 || input == output) return;
  const auto in = reinterpret_cast<uintptr_t>(input);
  const auto out = reinterpret_cast<uintptr_t>(output);
  const size_t distance = in < out ? out - in : in - out;
  if (distance < bytes) {
    throw Error(SYMM_INVALID_ARGUMENT,
                text("output ", output, " overlaps ", input_name, " ", input, " (", bytes,
                     " bytes): they must be the same or have no byte in common"));
  }
}

void check_equal_bytes(const std::vector<uint64_t>& bytes) {
  for (size_t rank = 1; rank < bytes.size(); ++rank) {
    if (bytes[rank] != bytes[0]) {
      throw Error(
          SYMM_INVALID_ARGUMENT,
          text("bytes differ: rank 0 asked for ", bytes[0], ", rank ", rank, " for ", bytes[rank]),
          static_cast<int>(rank));
    }
  }
}

void* Window::data(int rank) const {
  if (rank < 0 || rank >= comm_->size()) {
    throw Error(SYMM_INVALID_ARGUMENT, text("rank ", rank, " is not in 0..", comm_->size() - 1));
  }
  return copies_[static_cast<size_t>(rank)];
}

void Window::all_reduce(size_t offset, void* output, size_t count, symm_dtype dtype, symm_op op,
                        void* stream) {
  check_dtype_and_op(dtype, op);
  const size_t bytes = checked_bytes(count, dtype);
  const size_t element = dtype_size(dtype);
  if (offset > bytes_ || bytes > bytes_ - offset) {
    throw Error(SYMM_INVALID_ARGUMENT,
                text("offset ", offset, " with ", bytes, " bytes (", count, " x ",
                     dtype_name(dtype), ") reaches past the window's ", bytes_, " bytes"));
  }
  std::byte* const own = copies_[static_cast<size_t>(comm_->rank())];
  std::byte* const input = own == nullptr ? nullptr : own + offset;
  check_pointer("window + offset", input, bytes, element);
  check_pointer("output", output, bytes, element);
  void* result = output;
  if (alias_ != nullptr && bytes > 0) {
    // The caller may name the same memory by its own address.
    if (output == alias_ + offset) {
      result = input;
    } else {
      check_overlap("window + offset", alias_ + offset, output, bytes);
    }
  }
  check_overlap("window + offset", input, result, bytes);
  Call call;
  call.form = Form::kWindowAllReduce;
  call.dtype = dtype;
  call.op = op;
  call.count = count;
  call.window = number_;
  call.offset = offset;
  if (check_alias_) check_alias_();
  comm_->all_reduce(call, input, result, stream, *this);
}

}  // namespace symm
