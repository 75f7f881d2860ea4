// Part of a vector: the last bytes of an array. The rest of a loaded vector is zero.
//
// Put together in registers: a few small stores to a buffer and one wide load of it would wait
// until all of them have left the store buffer, which takes longer than reducing a handful of
// elements.
#ifndef SYMM_KERNELS_CPU_PARTIAL_H_
#define SYMM_KERNELS_CPU_PARTIAL_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/vector.h"

namespace symm::cpu {
namespace {

// An element that is as wide as the words it is shifted about in would change places.
constexpr bool kLittleEndian = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;

using Half = Vector<uint64_t, 16>;

// 1 to 8 bytes. Where the two loads overlap they agree.
[[gnu::always_inline]] inline uint64_t load_word(const std::byte* from, size_t bytes) {
  if (bytes >= 4) {
    const uint64_t high = load<uint32_t>(from + bytes - 4);
    return load<uint32_t>(from) | high << (8 * (bytes - 4));
  }
  if (bytes >= 2) {
    const uint64_t high = load<uint16_t>(from + bytes - 2);
    return load<uint16_t>(from) | high << (8 * (bytes - 2));
  }
  return load<uint8_t>(from);
}

[[gnu::always_inline]] inline void store_word(std::byte* to, uint64_t word, size_t bytes) {
  if (bytes >= 4) {
    store(to, static_cast<uint32_t>(word));
    store(to + bytes - 4, static_cast<uint32_t>(word >> (8 * (bytes - 4))));
  } else if (bytes >= 2) {
    store(to, static_cast<uint16_t>(word));
    store(to + bytes - 2, static_cast<uint16_t>(word >> (8 * (bytes - 2))));
  } else {
    store(to, static_cast<uint8_t>(word));
  }
}

// 1 to 16 bytes.
[[gnu::always_inline]] inline Half load_half(const std::byte* from, size_t bytes) {
  if (bytes > 8) return Half{load<uint64_t>(from), load_word(from + 8, bytes - 8)};
  return Half{load_word(from, bytes), 0};
}

[[gnu::always_inline]] inline void store_half(std::byte* to, Half half, size_t bytes) {
  if (bytes > 8) {
    store(to, half[0]);
    store_word(to + 8, half[1], bytes - 8);
  } else {
    store_word(to, half[0], bytes);
  }
}

// The first `bytes` of V, at least one and not all.
template <class V>
[[gnu::always_inline]] inline V load_part(const std::byte* from, size_t bytes) {
#if defined(__AVX512BW__)
  return bits<V>(_mm512_maskz_loadu_epi8((uint64_t{1} << bytes) - 1, from));
#else
  if constexpr (!kLittleEndian) {
    V v{};
    __builtin_memcpy(&v, from, bytes);
    return v;
  } else if constexpr (sizeof(V) == 16) {
    return bits<V>(load_half(from, bytes));
  } else {
    Half halves[2] = {};
    if (bytes > 16) {
      halves[0] = load<Half>(from);
      halves[1] = load_half(from + 16, bytes - 16);
    } else {
      halves[0] = load_half(from, bytes);
    }
    return bits<V>(__builtin_shufflevector(halves[0], halves[1], 0, 1, 2, 3));
  }
#endif
}

template <class V>
[[gnu::always_inline]] inline void store_part(std::byte* to, V v, size_t bytes) {
#if defined(__AVX512BW__)
  _mm512_mask_storeu_epi8(to, (uint64_t{1} << bytes) - 1, bits<__m512i>(v));
#else
  if constexpr (!kLittleEndian) {
    __builtin_memcpy(to, &v, bytes);
  } else if constexpr (sizeof(V) == 16) {
    store_half(to, bits<Half>(v), bytes);
  } else {
    const auto words = bits<Vector<uint64_t, 32>>(v);
    const Half low = __builtin_shufflevector(words, words, 0, 1);
    if (bytes > 16) {
      store(to, low);
      store_half(to + 16, __builtin_shufflevector(words, words, 2, 3), bytes - 16);
    } else {
      store_half(to, low, bytes);
    }
  }
#endif
}

}  // namespace
}  // namespace symm::cpu

#endif  // SYMM_KERNELS_CPU_PARTIAL_H_
