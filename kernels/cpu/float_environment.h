// The thread's floating-point controls, at their defaults while a kernel runs.
//
// Callers flush denormals (torch.set_flush_denormal, a program linked with -ffast-math), round
// otherwise or trap; a rank that does would get other bits than its peers, or a signal.
#ifndef SYMM_KERNELS_CPU_FLOAT_ENVIRONMENT_H_
#define SYMM_KERNELS_CPU_FLOAT_ENVIRONMENT_H_

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace symm::cpu {
namespace {

// Whoever holds one calls the arithmetic through a function that is not inlined: compilers know
// nothing of the controls and would move the arithmetic past them.
class FloatEnvironment {
 public:
  [[gnu::always_inline]] FloatEnvironment() : saved_(get()) {
    if (changed()) [[unlikely]] set(kDefault);
  }
  [[gnu::always_inline]] ~FloatEnvironment() {
    if (changed()) [[unlikely]] set(saved_);
  }
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
  [[gnu::always_inline]] bool changed() const { return (saved_ & kControls) != kDefault; }

#if defined(__x86_64__)
  using Register = uint32_t;
  static constexpr Register kControls = 0xffc0;  // all of MXCSR but the exceptions seen so far
  static constexpr Register kDefault = 0x1f80;   // nearest, denormals kept, every exception masked
  [[gnu::always_inline]] static Register get() { return _mm_getcsr(); }
  [[gnu::always_inline]] static void set(Register value) { _mm_setcsr(value); }
#elif defined(__aarch64__)
  using Register = uint64_t;
  static constexpr Register kControls = ~Register{0};
  static constexpr Register kDefault = 0;
  [[gnu::always_inline]] static Register get() {
    Register value;
    asm volatile("mrs %0, fpcr" : "=r"(value));
    return value;
  }
  [[gnu::always_inline]] static void set(Register value) {
    asm volatile("msr fpcr, %0" : : "r"(value) : "memory");
  }
#else
  using Register = uint32_t;
  static constexpr Register kControls = 0;
  static constexpr Register kDefault = 0;
  static Register get() { return 0; }
  static void set(Register) {}
#endif

  const Register saved_;
};

}  // namespace
}  // namespace symm::cpu

#endif  // SYMM_KERNELS_CPU_FLOAT_ENVIRONMENT_H_
