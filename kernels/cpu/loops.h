// The loops over elements, and the table of a level.
//
// A step takes some bytes of elements at one offset: it decodes them from the first source,
// combines the other sources in order, encodes, and only then stores. Every element is therefore
// read from all sources before it is written, and no step touches another's elements, which is all
// that outputs equal to sources need.
#ifndef SYMM_KERNELS_CPU_LOOPS_H_
#define SYMM_KERNELS_CPU_LOOPS_H_

#include <cstddef>
#include <cstdint>

#include "capi/symm.h"
#include "kernels/cpu/copy.h"
#include "kernels/cpu/formats.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/operations.h"
#include "kernels/cpu/partial.h"
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
  // Not inlined: it would be half of the code, in 60 functions.
  template <class V>
  [[gnu::noinline]] static V load_part(const std::byte* from, size_t bytes) {
    return cpu::load_part<V>(from, bytes);
  }
};

// Two, with no loop over them and everything inlined: what matters for a handful of elements.
struct TwoSources {
  const std::byte* first;
  const std::byte* second;

  [[gnu::always_inline]] int size() const { return 2; }
  [[gnu::always_inline]] const std::byte* operator[](int s) const {
    return s == 0 ? first : second;
  }
  template <class V>
  [[gnu::always_inline]] static V load_part(const std::byte* from, size_t bytes) {
    return cpu::load_part<V>(from, bytes);
  }
};

template <class Format, symm_op kOp>
struct Reduction {
  using Element = typename Format::Element;
  using Lane = typename Format::Lane;
  using Stored = typename Format::Stored;
  static constexpr int kParts = Format::kParts;
  using Accumulator = Parts<Lane, kParts>;
  // Vectors in a block: four accumulators hide the latency of an addition and fit the registers.
  static constexpr size_t kUnroll = 4 / kParts;
  static constexpr size_t kBlock = kUnroll * kVectorBytes;

  [[gnu::always_inline]] static Accumulator decode_at(const std::byte* from) {
    if constexpr (requires { Format::decode_at(from); }) {
      return Format::decode_at(from);
    } else {
      return Format::decode(load<Stored>(from));
    }
  }

  [[gnu::always_inline]] static void add(Accumulator& accumulator, const Accumulator& operand) {
#pragma GCC unroll 4
    for (int k = 0; k < kParts; ++k) {
      accumulator.part[k] = combine<kOp, Lane>(accumulator.part[k], operand.part[k]);
    }
  }

  [[gnu::always_inline]] static Stored result(Accumulator& accumulator, int n) {
#pragma GCC unroll 4
    for (int k = 0; k < kParts; ++k) {
      accumulator.part[k] = finish<kOp, Lane>(accumulator.part[k], n);
    }
    return Format::encode(accumulator);
  }

  // Whole blocks from `at` on, as many as fit before `end`; returns where they end.
  [[gnu::noinline]] static size_t blocks(const Outputs outputs, const ManySources sources,
                                         size_t at, size_t end, Store store_as) {
    for (; end - at >= kBlock; at += kBlock) {
      Accumulator accumulators[kUnroll];
      const std::byte* first = sources[0] + at;
#pragma GCC unroll 4
      for (size_t i = 0; i < kUnroll; ++i) {
        accumulators[i] = decode_at(first + i * kVectorBytes);
      }
      for (int s = 1; s < sources.size(); ++s) {
        const std::byte* next = sources[s] + at;
#pragma GCC unroll 4
        for (size_t i = 0; i < kUnroll; ++i) {
          add(accumulators[i], decode_at(next + i * kVectorBytes));
        }
      }
      Stored results[kUnroll];
#pragma GCC unroll 4
      for (size_t i = 0; i < kUnroll; ++i) results[i] = result(accumulators[i], sources.size());
      std::byte* out = outputs.out + at;
      if (store_as == Store::kStreaming) {
#pragma GCC unroll 4
        for (size_t i = 0; i < kUnroll; ++i) store_streaming(out + i * kVectorBytes, results[i]);
      } else {
#pragma GCC unroll 4
        for (size_t i = 0; i < kUnroll; ++i) store(out + i * kVectorBytes, results[i]);
      }
      if (outputs.also != nullptr) {
        std::byte* also = outputs.also + at;
#pragma GCC unroll 4
        for (size_t i = 0; i < kUnroll; ++i) store(also + i * kVectorBytes, results[i]);
      }
    }
    return at;
  }

  // Fewer bytes than a block: vectors, then part of one.
  template <class Sources>
  [[gnu::noinline]] static void ends(const Outputs outputs, const Sources sources, size_t at,
                                     size_t end) {
    if constexpr (kUnroll > 1) {
      for (; end - at >= kVectorBytes; at += kVectorBytes) {
        Accumulator accumulator = decode_at(sources[0] + at);
        for (int s = 1; s < sources.size(); ++s) add(accumulator, decode_at(sources[s] + at));
        const Stored stored = result(accumulator, sources.size());
        store(outputs.out + at, stored);
        if (outputs.also != nullptr) store(outputs.also + at, stored);
      }
    }
    const size_t bytes = end - at;
    if (bytes == 0) return;
    Accumulator accumulator =
        Format::decode(sources.template load_part<Stored>(sources[0] + at, bytes));
    for (int s = 1; s < sources.size(); ++s) {
      add(accumulator, Format::decode(sources.template load_part<Stored>(sources[s] + at, bytes)));
    }
    const Stored stored = result(accumulator, sources.size());
    store_part(outputs.out + at, stored, bytes);
    if (outputs.also != nullptr) store_part(outputs.also + at, stored, bytes);
  }

  static void whole(const Outputs outputs, const ManySources sources, size_t end, Store store_as) {
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

// A dtype may take different formats for different operations.
template <class Sums, class Extremes = Sums, class Averages = Extremes>
constexpr void fill(ReduceFunction (&row)[Kernels::kOps]) {
  row[SYMM_SUM] = Reduction<Sums, SYMM_SUM>::run;
  row[SYMM_PROD] = Reduction<Sums, SYMM_PROD>::run;
  row[SYMM_MAX] = Reduction<Extremes, SYMM_MAX>::run;
  row[SYMM_MIN] = Reduction<Extremes, SYMM_MIN>::run;
  row[SYMM_AVG] = Reduction<Averages, SYMM_AVG>::run;
}

constexpr Kernels make_kernels() {
  Kernels kernels{};
  // Sums and products of integers wrap to the same bits whatever the sign, so that both share code.
  fill<Whole<uint8_t>, Whole<int8_t>>(kernels.reduce[SYMM_INT8]);
  fill<Whole<uint8_t>>(kernels.reduce[SYMM_UINT8]);
  fill<Whole<uint32_t>, Whole<int32_t>>(kernels.reduce[SYMM_INT32]);
  fill<Whole<uint32_t>>(kernels.reduce[SYMM_UINT32]);
  fill<Whole<uint64_t>, Whole<int64_t>>(kernels.reduce[SYMM_INT64]);
  fill<Whole<uint64_t>>(kernels.reduce[SYMM_UINT64]);
  fill<ConvertedFloat16>(kernels.reduce[SYMM_FLOAT16]);
  fill<Whole<float>>(kernels.reduce[SYMM_FLOAT32]);
  fill<Whole<double>>(kernels.reduce[SYMM_FLOAT64]);
  fill<Narrow<Bfloat16>>(kernels.reduce[SYMM_BFLOAT16]);
  fill<Narrow<Float8E4m3>>(kernels.reduce[SYMM_FLOAT8_E4M3]);
  using E5m2 = Narrow<Float8E5m2>;
  fill<E5m2, Narrow<Float8E5m2Infinite>, E5m2>(kernels.reduce[SYMM_FLOAT8_E5M2]);
  kernels.copy = copy_bytes;
  return kernels;
}

}  // namespace
}  // namespace symm::cpu

#endif  // SYMM_KERNELS_CPU_LOOPS_H_
