#include "kernels/cpu/reduce.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "kernels/cpu/kernels.h"

// The levels of this build: CMakeLists.txt says which of x86-64's the compiler knows.
#if !defined(SYMM_CPU_X86_V2)
#define SYMM_CPU_X86_V2 0
#endif
#if !defined(SYMM_CPU_X86_V3)
#define SYMM_CPU_X86_V3 0
#endif
#if !defined(SYMM_CPU_X86_V4)
#define SYMM_CPU_X86_V4 0
#endif

namespace symm::cpu {
namespace {

#if defined(__aarch64__)
constexpr bool kHasNeon = true;
#else
constexpr bool kHasNeon = false;
#endif

const Kernels* kernels_of(Level level) {
  switch (level) {
    case Level::kBaseline:
      return &kBaselineKernels;
#if SYMM_CPU_X86_V2
    case Level::kX86V2:
      return &kX86V2Kernels;
#endif
#if SYMM_CPU_X86_V3
    case Level::kX86V3:
      return &kX86V3Kernels;
#endif
#if SYMM_CPU_X86_V4
    case Level::kX86V4:
      return &kX86V4Kernels;
#endif
    case Level::kNeon:
      // Every aarch64 CPU has NEON, so its baseline is that level.
      return kHasNeon ? &kBaselineKernels : nullptr;
    default:
      return nullptr;
  }
}

#if defined(__x86_64__)
// The bits that __builtin_cpu_supports has no name for in every supported compiler. They need no
// state beyond what AVX needs, so the operating system's part is in avx2's answer.
bool cpuid_has(unsigned leaf, unsigned ecx_bits) {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(leaf, &eax, &ebx, &ecx, &edx) != 0 && (ecx & ecx_bits) == ecx_bits;
}

bool runs_v2() {
  constexpr unsigned kCmpxchg16b = 1u << 13;
  constexpr unsigned kLahf = 1u << 0;
  return __builtin_cpu_supports("sse3") && __builtin_cpu_supports("ssse3") &&
         __builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("sse4.2") &&
         __builtin_cpu_supports("popcnt") && cpuid_has(1, kCmpxchg16b) &&
         cpuid_has(0x80000001u, kLahf);
}

bool runs_v3() {
  constexpr unsigned kMovbe = 1u << 22;
  constexpr unsigned kOsxsave = 1u << 27;
  constexpr unsigned kF16c = 1u << 29;
  constexpr unsigned kLzcnt = 1u << 5;
  return runs_v2() && __builtin_cpu_supports("avx") && __builtin_cpu_supports("avx2") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
         __builtin_cpu_supports("fma") && cpuid_has(1, kMovbe | kOsxsave | kF16c) &&
         cpuid_has(0x80000001u, kLzcnt);
}

bool runs_v4() {
  return runs_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}
#endif

Level find_best_level() {
  if (kHasNeon) return Level::kNeon;
#if defined(__x86_64__)
  if (SYMM_CPU_X86_V4 && runs_v4()) return Level::kX86V4;
  if (SYMM_CPU_X86_V3 && runs_v3()) return Level::kX86V3;
  if (SYMM_CPU_X86_V2 && runs_v2()) return Level::kX86V2;
#endif
  return Level::kBaseline;
}

}  // namespace

Level best_level() {
  static const Level level = find_best_level();
  return level;
}

const char* level_name(Level level) {
  switch (level) {
    case Level::kBaseline:
      return "baseline";
    case Level::kX86V2:
      return "x86-64-v2";
    case Level::kX86V3:
      return "x86-64-v3";
    case Level::kX86V4:
      return "x86-64-v4";
    case Level::kNeon:
      return "neon";
  }
  return "unknown";
}

ReduceFunction reduce_function(Level level, symm_dtype dtype, symm_op op) {
  const Kernels* kernels = kernels_of(level);
  if (kernels == nullptr || dtype < 0 || dtype >= Kernels::kDtypes || op < 0 ||
      op >= Kernels::kOps) {
    return nullptr;
  }
  return kernels->reduce[dtype][op];
}

void copy(Level level, void* out, const void* in, size_t bytes, Store store) {
  kernels_of(level)->copy(out, in, bytes, store);
}

}  // namespace symm::cpu
