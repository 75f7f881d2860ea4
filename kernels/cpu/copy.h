// Copies, with a choice of store.
#ifndef SYMM_KERNELS_CPU_COPY_H_
#define SYMM_KERNELS_CPU_COPY_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/reduce.h"
#include "kernels/cpu/vector.h"

namespace symm::cpu {
namespace {

constexpr size_t kCacheLine = 64;

// Bytes from `out` to the next cache line.
[[gnu::always_inline]] inline size_t bytes_to_line(const std::byte* out) {
  return -reinterpret_cast<uintptr_t>(out) % kCacheLine;
}

// kBytes to 2 * kBytes, as two vectors that may overlap.
template <size_t kBytes>
[[gnu::always_inline]] inline void copy_two(std::byte* out, const std::byte* in, size_t bytes) {
  using V = Vector<uint8_t, kBytes>;
  const V head = load<V>(in);
  const V tail = load<V>(in + bytes - kBytes);
  store(out, head);
  store(out + bytes - kBytes, tail);
}

// At most 2 * kBytes.
template <size_t kBytes>
[[gnu::always_inline]] inline void copy_short(std::byte* out, const std::byte* in, size_t bytes) {
  if (bytes >= kBytes) {
    copy_two<kBytes>(out, in, bytes);
  } else if constexpr (kBytes > 1) {
    copy_short<kBytes / 2>(out, in, bytes);
  }
}

// Not memcpy: glibc's turns to `rep movsb`, which on some CPUs is half as fast for chunks of the
// sizes that all-reduces copy.
inline void copy_cached(std::byte* out, const std::byte* in, size_t bytes) {
  using V = Vector<uint8_t, kVectorBytes>;

  for (; bytes > 2 * kVectorBytes;
       bytes -= 2 * kVectorBytes, in += 2 * kVectorBytes, out += 2 * kVectorBytes) {
    const V one = load<V>(in);
    const V two = load<V>(in + kVectorBytes);
    store(out, one);
    store(out + kVectorBytes, two);
  }
  copy_short<kVectorBytes>(out, in, bytes);
}

inline void copy_streaming(std::byte* out, const std::byte* in, size_t bytes) {
  const size_t head = bytes_to_line(out);
  if (bytes < head + kCacheLine) return copy_cached(out, in, bytes);
  copy_cached(out, in, head);
  size_t at = head;
  for (; bytes - at >= kCacheLine; at += kCacheLine) {
    for (size_t i = at; i < at + kCacheLine; i += kVectorBytes) {
      store_streaming(out + i, load<Vector<uint8_t, kVectorBytes>>(in + i));
    }
  }
  fence_streaming();
  copy_cached(out + at, in + at, bytes - at);
}

[[gnu::noinline]] inline void copy_bytes(void* out, const void* in, size_t bytes, Store store) {
  auto* to = static_cast<std::byte*>(out);
  const auto* from = static_cast<const std::byte*>(in);
  if (store == Store::kStreaming) {
    copy_streaming(to, from, bytes);
  } else {
    copy_cached(to, from, bytes);
  }
}

}  // namespace
}  // namespace symm::cpu

#endif  // SYMM_KERNELS_CPU_COPY_H_
