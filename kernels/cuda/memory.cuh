// Loads and stores by their PTX: what the protocols need is more exact than what C++ says.
//
// "Relaxed" here is relaxed.sys: one single-copy-atomic access of each aligned 64 bits (PTX
// promises no more of a 16-byte vector), seen by every GPU and the host, ordering nothing.
#ifndef SYMM_KERNELS_CUDA_MEMORY_CUH_
#define SYMM_KERNELS_CUDA_MEMORY_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/abi.h"

namespace symm::cuda {

__device__ __forceinline__ uint4 load_relaxed(const std::byte* at) {
  uint4 v;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(at)
               : "memory");
  return v;
}

__device__ __forceinline__ uint2 load_relaxed_half(const void* at) {
  uint2 v;
  asm volatile("ld.relaxed.sys.global.v2.u32 {%0, %1}, [%2];"
               : "=r"(v.x), "=r"(v.y)
               : "l"(at)
               : "memory");
  return v;
}

__device__ __forceinline__ uint32_t load_acquire(const uint32_t* at) {
  uint32_t v;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
  return v;
}

__device__ __forceinline__ uint2 load_acquire_half(const void* at) {
  uint64_t v;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(at) : "memory");
  return {static_cast<uint32_t>(v), static_cast<uint32_t>(v >> 32)};
}

__device__ __forceinline__ void store_relaxed(std::byte* at, uint4 v) {
  asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(v.x), "r"(v.y),
               "r"(v.z), "r"(v.w)
               : "memory");
}

__device__ __forceinline__ void store_relaxed(uint32_t* at, uint32_t v) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(at), "r"(v) : "memory");
}

__device__ __forceinline__ void store_release(uint32_t* at, uint32_t v) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(at), "r"(v) : "memory");
}

__device__ __forceinline__ void store_release_half(void* at, uint2 v) {
  const uint64_t both = v.x | static_cast<uint64_t>(v.y) << 32;
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(at), "l"(both) : "memory");
}

__device__ __forceinline__ uint64_t nanoseconds() {
  uint64_t t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

// Until everything that the stream ran before has ended and can be seen: nothing that other kernels
// or ranks touch may be touched earlier. Launches without the attribute return from it at once.
__device__ __forceinline__ void wait_for_predecessor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel of the stream start, up to its own wait. Only after the sends: a kernel that
// allowed this before its own wait would start its successor, and that one its own, until waiting
// kernels filled the GPU and kept out the one whose sends they wait for.
__device__ __forceinline__ void allow_successor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Whether all of these are 0, which of addresses they never are. A kernel that returns then, before
// its wait for the predecessor, must have computed them by then: the first touch of the constant
// bank that holds the parameters is slow, and address arithmetic would stand between the wait and
// the sends. (An empty asm statement keeps nothing in its place: ptxas does not see it.)
template <class... Values>
__device__ __forceinline__ bool are_all_zero(Values... values) {
  return ((uint64_t)0 | ... | (uint64_t)(values)) == 0;
}

// `at`, in a way that hides from the compiler that every thread has the same: it would move what is
// loaded from there, the epoch, through the uniform registers, which takes longer.
__device__ __forceinline__ const std::byte* of_this_thread(const std::byte* at) {
  uint32_t own_bit;
  asm volatile("mov.u32 %0, %%lanemask_eq;" : "=r"(own_bit));
  return at + (__popc(own_bit) - 1);
}

// `value`, as if it were another: what is computed of it is computed anew, and keeps no registers
// meanwhile.
__device__ __forceinline__ uint32_t again(uint32_t value) {
  asm volatile("" : "+r"(value));
  return value;
}

// ---- The caller's input and output: element-aligned at least, any part of a packet --------------

template <int kBytes>
struct ElementOf;
template <>
struct ElementOf<1> {
  using Type = uint8_t;
};
template <>
struct ElementOf<2> {
  using Type = uint16_t;
};
template <>
struct ElementOf<4> {
  using Type = uint32_t;
};

// The first `valid` bytes of a word; the rest is 0. kElement divides 4.
template <int kElement>
__device__ __forceinline__ uint32_t load_word(const std::byte* at, int valid, bool aligned) {
  if (aligned && valid >= 4) return *reinterpret_cast<const uint32_t*>(at);
  uint32_t word = 0;
  if constexpr (kElement < 4) {
    using Element = typename ElementOf<kElement>::Type;
#pragma unroll
    for (int i = 0; i < 4; i += kElement) {
      if (i < valid) {
        word |= static_cast<uint32_t>(*reinterpret_cast<const Element*>(at + i)) << (8 * i);
      }
    }
  }
  return word;
}

template <int kElement>
__device__ __forceinline__ void store_word(std::byte* at, uint32_t word, int valid, bool aligned) {
  if (aligned && valid >= 4) {
    *reinterpret_cast<uint32_t*>(at) = word;
    return;
  }
  if constexpr (kElement < 4) {
    using Element = typename ElementOf<kElement>::Type;
#pragma unroll
    for (int i = 0; i < 4; i += kElement) {
      if (i < valid) *reinterpret_cast<Element*>(at + i) = static_cast<Element>(word >> (8 * i));
    }
  }
}

// 8-byte elements are at least 4-byte aligned words, and never cut.
template <int kElement>
constexpr int kWordElement = kElement < 4 ? kElement : 4;

__device__ __forceinline__ bool is_aligned(const void* at, int to) {
  return (reinterpret_cast<uintptr_t>(at) & (to - 1)) == 0;
}

// 16 bytes at `at`, of which the first `valid`, 1 to 16, exist. `whole`: all do, and `at` is
// aligned. That common case does not pollute L1: nothing is read twice.
template <int kElement>
__device__ __forceinline__ uint4 load_input(const std::byte* at, int valid, bool whole) {
  uint4 v;
  if (__builtin_expect(whole, true)) {
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at)
                 : "memory");
    return v;
  }
  const bool aligned = is_aligned(at, 4);
  constexpr int kUnit = kWordElement<kElement>;
  v.x = load_word<kUnit>(at, valid, aligned);
  v.y = load_word<kUnit>(at + 4, valid - 4, aligned);
  v.z = load_word<kUnit>(at + 8, valid - 8, aligned);
  v.w = load_word<kUnit>(at + 12, valid - 12, aligned);
  return v;
}

template <int kElement>
__device__ __forceinline__ void store_output(std::byte* at, uint4 v, int valid, bool whole) {
  if (__builtin_expect(whole, true)) {
    *reinterpret_cast<uint4*>(at) = v;
    return;
  }
  const bool aligned = is_aligned(at, 4);
  constexpr int kUnit = kWordElement<kElement>;
  store_word<kUnit>(at, v.x, valid, aligned);
  store_word<kUnit>(at + 4, v.y, valid - 4, aligned);
  store_word<kUnit>(at + 8, v.z, valid - 8, aligned);
  store_word<kUnit>(at + 12, v.w, valid - 12, aligned);
}

// How much of a packet there is `left` bytes before the end.
__device__ __forceinline__ int valid_of(uint64_t left) {
  return left < 16 ? static_cast<int>(left) : 16;
}

// The same for 8 bytes.
template <int kElement>
__device__ __forceinline__ uint2 load_input_half(const std::byte* at, int valid, bool whole) {
  uint2 v;
  if (__builtin_expect(whole, true)) {
    asm volatile("ld.global.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                 : "=r"(v.x), "=r"(v.y)
                 : "l"(at)
                 : "memory");
    return v;
  }
  const bool aligned = is_aligned(at, 4);
  constexpr int kUnit = kWordElement<kElement>;
  v.x = load_word<kUnit>(at, valid, aligned);
  v.y = load_word<kUnit>(at + 4, valid - 4, aligned);
  return v;
}

template <int kElement>
__device__ __forceinline__ void store_output_half(std::byte* at, uint2 v, int valid, bool whole) {
  if (__builtin_expect(whole, true)) {
    *reinterpret_cast<uint2*>(at) = v;
    return;
  }
  const bool aligned = is_aligned(at, 4);
  constexpr int kUnit = kWordElement<kElement>;
  store_word<kUnit>(at, v.x, valid, aligned);
  store_word<kUnit>(at + 4, v.y, valid - 4, aligned);
}

}  // namespace symm::cuda

#endif  // SYMM_KERNELS_CUDA_MEMORY_CUH_
