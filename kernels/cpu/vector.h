// Vectors as wide as the instruction level has them, by the extension that GCC and clang share.
//
// Written out rather than left to the compilers' loop vectorisers, because those give up on the one
// loop nest that matters here: accumulators in registers over a number of sources known only at run
// time. It also makes aliasing plain: all sources of a block are in registers before any store.
//
// Only a level's file includes this. The unnamed namespace is what keeps levels apart (kernels.h),
// and so is the absence of standard library calls.
#ifndef SYMM_KERNELS_CPU_VECTOR_H_
#define SYMM_KERNELS_CPU_VECTOR_H_

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace symm::cpu {
namespace {

#if defined(__AVX512F__)
constexpr size_t kVectorBytes = 64;
#elif defined(__AVX__)
constexpr size_t kVectorBytes = 32;
#else
constexpr size_t kVectorBytes = 16;
#endif

template <class T, size_t kBytes>
struct VectorOf {
  typedef T Type __attribute__((vector_size(kBytes)));
};
template <class T, size_t kBytes = kVectorBytes>
using Vector = typename VectorOf<T, kBytes>::Type;

using Floats = Vector<float>;
using Words = Vector<uint32_t>;
using Ints = Vector<int32_t>;
using HalfInts = Vector<int32_t, kVectorBytes / 2>;

// The unsigned integer as wide as T.
template <size_t kSize>
struct UnsignedOf;
template <>
struct UnsignedOf<1> {
  using Type = uint8_t;
};
template <>
struct UnsignedOf<4> {
  using Type = uint32_t;
};
template <>
struct UnsignedOf<8> {
  using Type = uint64_t;
};
template <class T>
using Unsigned = typename UnsignedOf<sizeof(T)>::Type;

template <class T>
constexpr bool kIsFloat = false;
template <>
constexpr bool kIsFloat<float> = true;
template <>
constexpr bool kIsFloat<double> = true;

// The same bits as another type of the same size.
template <class To, class From>
[[gnu::always_inline]] inline To bits(From from) {
  return __builtin_bit_cast(To, from);
}

[[gnu::always_inline]] inline HalfInts low_half(Ints v) {
#if defined(__AVX512F__)
  return __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7);
#elif defined(__AVX__)
  return __builtin_shufflevector(v, v, 0, 1, 2, 3);
#else
  return __builtin_shufflevector(v, v, 0, 1);
#endif
}

[[gnu::always_inline]] inline HalfInts high_half(Ints v) {
#if defined(__AVX512F__)
  return __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
#elif defined(__AVX__)
  return __builtin_shufflevector(v, v, 4, 5, 6, 7);
#else
  return __builtin_shufflevector(v, v, 2, 3);
#endif
}

[[gnu::always_inline]] inline Ints join(HalfInts low, HalfInts high) {
#if defined(__AVX512F__)
  return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#elif defined(__AVX__)
  return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
#else
  return __builtin_shufflevector(low, high, 0, 1, 2, 3);
#endif
}

// At any alignment, and whatever type is there.
template <class V>
[[gnu::always_inline]] inline V load(const std::byte* from) {
  V v;
  __builtin_memcpy(&v, from, sizeof(V));
  return v;
}

template <class V>
[[gnu::always_inline]] inline void store(std::byte* to, V v) {
  __builtin_memcpy(to, &v, sizeof(V));
}

// A whole vector to an address that is a multiple of its size, past the caches where there is an
// instruction for it.
template <class V>
[[gnu::always_inline]] inline void store_streaming(std::byte* to, V v) {
#if defined(__AVX512F__)
  if constexpr (sizeof(V) == 64) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), bits<__m512i>(v));
    return;
  }
#endif
#if defined(__AVX__)
  if constexpr (sizeof(V) == 32) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), bits<__m256i>(v));
    return;
  }
#endif
#if defined(__x86_64__)
  if constexpr (sizeof(V) == 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to), bits<__m128i>(v));
    return;
  }
#endif
  store(to, v);
}

// Streaming stores are not ordered with the release store that later publishes them.
[[gnu::always_inline]] inline void fence_streaming() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace
}  // namespace symm::cpu

#endif  // SYMM_KERNELS_CPU_VECTOR_H_
