// What an all-reduce must give, worked out one element at a time straight from symm.h's words, with
// none of the library's code.
#ifndef SYMM_TESTS_SUPPORT_REFERENCE_H_
#define SYMM_TESTS_SUPPORT_REFERENCE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "capi/symm.h"

namespace symm_test {

extern const std::vector<symm_dtype> kAllDtypes;
extern const std::vector<symm_op> kAllOps;
size_t size_of(symm_dtype dtype);
std::string name_of(symm_dtype dtype);
std::string name_of(symm_op op);

uint64_t mix(uint64_t value);  // a good hash of one word: the tests' random numbers

// `count` elements that depend on seed, rank and place only. Most are ordinary numbers whose sum
// depends on the order of its terms; at every sixteenth place or so, on all ranks, any bits: NaN,
// infinity, -0 and subnormal numbers among them.
void fill(void* out, size_t count, symm_dtype dtype, uint64_t seed, int rank);

// The result for inputs[0], inputs[1], ... in rank order.
std::vector<std::byte> reference(const std::vector<const void*>& inputs, size_t count,
                                 symm_dtype dtype, symm_op op);

// The first element where `got` is not `expected`, bit for bit but that any NaN is any other;
// SIZE_MAX if there is none.
size_t first_difference(const void* got, const void* expected, size_t count, symm_dtype dtype);

std::string element_text(const void* elements, size_t index, symm_dtype dtype);

uint64_t hash_bytes(const void* bytes, size_t size, uint64_t seed = 1);

}  // namespace symm_test

#endif  // SYMM_TESTS_SUPPORT_REFERENCE_H_
