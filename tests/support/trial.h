// One all-reduce with everything around it checked: result, input, canaries.
#ifndef SYMM_TESTS_SUPPORT_TRIAL_H_
#define SYMM_TESTS_SUPPORT_TRIAL_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "capi/symm.h"

namespace symm_test {

enum class Place {
  kSeparate,         // symm_all_reduce, two private buffers
  kInPlace,          // symm_all_reduce, one
  kWindow,           // symm_window_all_reduce into a private buffer
  kWindowInPlace,    // ... into the window's own range
  kWindowElsewhere,  // ... into another range of the same window
};

struct Trial {
  Place place = Place::kSeparate;
  symm_dtype dtype = SYMM_FLOAT32;
  symm_op op = SYMM_SUM;
  size_t count = 0;
  size_t input_shift = 0;   // elements past a 64-byte border; of the window's offset too
  size_t output_shift = 0;  // elements; may differ between ranks
  uint64_t seed = 0;

  std::string text() const;
};

// Bytes of a window that any trial of so many bytes fits in.
size_t window_bytes_for(size_t most_bytes);

// Performs it as this rank of `comm`. `window` may be null for the places that need none. Reports
// failures; `check` compares with the reference too. Returns a hash of the result: equal bits on
// every rank are equal hashes.
uint64_t perform(symm_comm* comm, symm_window* window, const Trial& trial, bool check);

}  // namespace symm_test

#endif  // SYMM_TESTS_SUPPORT_TRIAL_H_
