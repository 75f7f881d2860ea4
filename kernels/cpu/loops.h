// The loops over elements, and the table of a level.
//
// A step takes some bytes of elements at one offset: it decodes them from the first source, combines
// the other sources in order, encodes, and only then stores. Every element is therefore read from
// all sources before it is written, and no step touches another's elements, which is all that
// outputs equal to sources need.
#ifndef SYMM_KERNELS_CPU_LOOPS_H_
#define SYMM_KERNELS_CPU_LOOPS_H_

#include <cstddef>
#include <cstdint>

#include "capi/symm.h"
#include "kernels/cpu/copy.h"
#include "kernels/cpu/formats.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/operations.h"
#include "kernels/cpu/vector.h"

namespace symm::cpu {
namespace {

struct Outputs {
  std::byte* out;
  std::byte* also;  // or null
};

struct ManySources {
  const void* const* pointers;
  int count;

  [[gnu::always_inline]] int size() const { return count; }
  [[gnu::always_inline]] const std::byte* operator[](int s) const {
    return static_cast<const std::byte*>(pointers[s]);
  }
};

// Two, with no loop over them: what matters for a handful of elements.
struct TwoSources {
  const std::byte* first;
  const std::byte* second;

  [[gnu::always_inline]] int size() const { return 2; }
  [[gnu::always_inline]] const std::byte* operator[](int s) const { return s == 0 ? first : second; }
};

template <class Format, symm_op kOp>
struct Reduction {
  using Element = typename Format::Element;
  using Lane = typename Format::Lane;
  static constexpr int kParts = Format::kParts;
  // Vectors in a block: four accumulators hide the latency of an addition and fit the registers.
  static constexpr int kUnroll = 4 / kParts;
  static constexpr size_t kBlock = kUnroll * kVectorBytes;
  static constexpr size_t kVector = kVectorBytes;

  template <int kBytes>
  using Decoded = Parts<Lane, kBytes, kParts>;

  template <int kBytes>
  [[gnu::always_inline]] static void add(Decoded<kBytes>& accumulated, const std::byte* from) {
    const Decoded<kBytes> operand = Format::template decode<kBytes>(from);
#pragma GCC unroll 4
    for (int k = 0; k < kParts; ++k) {
      accumulated.part[k] = combine<kOp, Lane, kBytes>(accumulated.part[k], operand.part[k]);
    }
  }

  template <int kBytes>
  [[gnu::always_inline]] static auto result(Decoded<kBytes>& accumulated, int n) {
#pragma GCC unroll 4
    for (int k = 0; k < kParts; ++k) {
      accumulated.part[k] = finish<kOp, Lane, kBytes>(accumulated.part[k], n);
    }
    return Format::template encode<kBytes>(accumulated);
  }

  // Whole blocks from `at` on, as many as fit before `end`; returns where they end.
  [[gnu::noinline]] static size_t blocks(const Outputs outputs, const ManySources sources,
                                         size_t at, size_t end, Store store_as) {
    using Encoded = decltype(result<kVectorBytes>(*static_cast<Decoded<kVectorBytes>*>(nullptr), 1));
    for (; end - at >= kBlock; at += kBlock) {
      Decoded<kVectorBytes> accumulated[kUnroll];
      const std::byte* first = sources[0] + at;
#pragma GCC unroll 4
      for (int i = 0; i < kUnroll; ++i) {
        accumulated[i] = Format::template decode<kVectorBytes>(first + i * kVectorBytes);
      }
      for (int s = 1; s < sources.size(); ++s) {
        const std::byte* next = sources[s] + at;
#pragma GCC unroll 4
        for (int i = 0; i < kUnroll; ++i) {
          add<kVectorBytes>(accumulated[i], next + i * kVectorBytes);
        }
      }
      Encoded encoded[kUnroll];
#pragma GCC unroll 4
      for (int i = 0; i < kUnroll; ++i) {
        encoded[i] = result<kVectorBytes>(accumulated[i], sources.size());
      }
      std::byte* out = outputs.out + at;
      if (store_as == Store::kStreaming) {
#pragma GCC unroll 4
        for (int i = 0; i < kUnroll; ++i) store_streaming(out + i * kVectorBytes, encoded[i]);
      } else {
#pragma GCC unroll 4
        for (int i = 0; i < kUnroll; ++i) store(out + i * kVectorBytes, encoded[i]);
      }
      if (outputs.also != nullptr) {
        std::byte* also = outputs.also + at;
#pragma GCC unroll 4
        for (int i = 0; i < kUnroll; ++i) store(also + i * kVectorBytes, encoded[i]);
      }
    }
    return at;
  }

  template <int kBytes, class Sources>
  [[gnu::always_inline]] static void step(const Outputs& outputs, const Sources& sources,
                                          size_t at) {
    auto accumulated = Format::template decode<kBytes>(sources[0] + at);
    for (int s = 1; s < sources.size(); ++s) add<kBytes>(accumulated, sources[s] + at);
    const auto encoded = result<kBytes>(accumulated, sources.size());
    store(outputs.out + at, encoded);
    if (outputs.also != nullptr) store(outputs.also + at, encoded);
  }

  // The last bytes, fewer than 2 * kBytes, in ever smaller vectors. Best where decoding is nothing.
  template <int kBytes, class Sources>
  [[gnu::always_inline]] static void halves(const Outputs& outputs, const Sources& sources,
                                            size_t at, size_t end) {
    if (end - at >= kBytes) {
      step<kBytes>(outputs, sources, at);
      at += kBytes;
    }
    if constexpr (kBytes / 2 >= static_cast<int>(sizeof(Element))) {
      halves<kBytes / 2>(outputs, sources, at, end);
    }
  }

  // The last bytes, fewer than a vector, as one vector filled up with zeros. Best where decoding
  // costs more than the two copies.
  template <class Sources>
  [[gnu::always_inline]] static void padded(const Outputs& outputs, const Sources& sources,
                                            size_t at, size_t end) {
    const size_t bytes = end - at;
    if (bytes == 0) return;
    alignas(kVectorBytes) std::byte buffer[kVectorBytes] = {};
    copy_short<kVectorBytes / 2>(buffer, sources[0] + at, bytes);
    auto accumulated = Format::template decode<kVectorBytes>(buffer);
    for (int s = 1; s < sources.size(); ++s) {
      copy_short<kVectorBytes / 2>(buffer, sources[s] + at, bytes);
      add<kVectorBytes>(accumulated, buffer);
    }
    store(buffer, result<kVectorBytes>(accumulated, sources.size()));
    copy_short<kVectorBytes / 2>(outputs.out + at, buffer, bytes);
    if (outputs.also != nullptr) copy_short<kVectorBytes / 2>(outputs.also + at, buffer, bytes);
  }

  // Fewer bytes than a block.
  template <class Sources>
  [[gnu::noinline]] static void ends(const Outputs outputs, const Sources sources, size_t at,
                                     size_t end) {
    if constexpr (kUnroll > 1) {
      for (; end - at >= kVector; at += kVector) step<kVectorBytes>(outputs, sources, at);
    }
    if constexpr (sizeof(Element) >= 4) {
      halves<kVectorBytes / 2>(outputs, sources, at, end);
    } else {
      padded(outputs, sources, at, end);
    }
  }

  static void whole(const Outputs outputs, const ManySources sources, size_t end,
                                      Store store_as) {
    size_t at = 0;
    if (store_as == Store::kStreaming) {
      // Whole cache lines of `out` go past the caches, its ends do not.
      const size_t head = bytes_to_line(outputs.out);
      if (head % sizeof(Element) == 0 && end >= head + kBlock) {
        at = blocks(outputs, sources, 0, head, Store::kCached);
        ends(outputs, sources, at, head);
        at = blocks(outputs, sources, head, end, Store::kStreaming);
        fence_streaming();
      }
    }
    at = blocks(outputs, sources, at, end, Store::kCached);
    ends(outputs, sources, at, end);
  }

  static void run(void* out, void* also, const void* const* sources, int n, size_t count,
                  Store store_as) {
    const size_t bytes = count * sizeof(Element);
    if (n == 1) {
      if (out != sources[0]) copy_bytes(out, sources[0], bytes, store_as);
      if (also != nullptr && also != sources[0]) {
        copy_bytes(also, sources[0], bytes, Store::kCached);
      }
      return;
    }
    const Outputs outputs{static_cast<std::byte*>(out), static_cast<std::byte*>(also)};
    if constexpr (kOp == SYMM_SUM) {
      if (n == 2 && bytes < kBlock) {
        const TwoSources two{static_cast<const std::byte*>(sources[0]),
                             static_cast<const std::byte*>(sources[1])};
        return ends(outputs, two, 0, bytes);
      }
    }
    whole(outputs, {sources, n}, bytes, store_as);
  }
};

// Sums and products of integers wrap to the same bits whatever the sign: `Wrapping` is the unsigned
// type, so that both share the code.
template <class Format, class Wrapping = Format>
constexpr void fill(ReduceFunction (&row)[Kernels::kOps]) {
  row[SYMM_SUM] = Reduction<Wrapping, SYMM_SUM>::run;
  row[SYMM_PROD] = Reduction<Wrapping, SYMM_PROD>::run;
  row[SYMM_MAX] = Reduction<Format, SYMM_MAX>::run;
  row[SYMM_MIN] = Reduction<Format, SYMM_MIN>::run;
  row[SYMM_AVG] = Reduction<Format, SYMM_AVG>::run;
}

constexpr Kernels make_kernels() {
  Kernels kernels{};
  fill<Whole<int8_t>, Whole<uint8_t>>(kernels.reduce[SYMM_INT8]);
  fill<Whole<uint8_t>>(kernels.reduce[SYMM_UINT8]);
  fill<Whole<int32_t>, Whole<uint32_t>>(kernels.reduce[SYMM_INT32]);
  fill<Whole<uint32_t>>(kernels.reduce[SYMM_UINT32]);
  fill<Whole<int64_t>, Whole<uint64_t>>(kernels.reduce[SYMM_INT64]);
  fill<Whole<uint64_t>>(kernels.reduce[SYMM_UINT64]);
  fill<ConvertedFloat16>(kernels.reduce[SYMM_FLOAT16]);
  fill<Whole<float>>(kernels.reduce[SYMM_FLOAT32]);
  fill<Whole<double>>(kernels.reduce[SYMM_FLOAT64]);
  fill<Narrow<Bfloat16>>(kernels.reduce[SYMM_BFLOAT16]);
  fill<Narrow<Float8E4m3>>(kernels.reduce[SYMM_FLOAT8_E4M3]);
  fill<Narrow<Float8E5m2>>(kernels.reduce[SYMM_FLOAT8_E5M2]);
  kernels.copy = copy_bytes;
  return kernels;
}

}  // namespace
}  // namespace symm::cpu

#endif  // SYMM_KERNELS_CPU_LOOPS_H_
