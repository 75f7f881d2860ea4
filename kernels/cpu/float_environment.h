// The thread's floating-point controls, at their defaults for as long as one of these lives.
//
// Callers flush denormals (torch.set_flush_denormal, a program linked with -ffast-math), round
// otherwise or trap; a rank that does would get other bits than its peers, or a signal.
//
// Reading the controls takes 8 ns on some CPUs, as much as reducing 50 elements, so the reductions
// leave it to their caller: hold one around them, made where the time is spent waiting anyway.
#ifndef SYMM_KERNELS_CPU_FLOAT_ENVIRONMENT_H_
#define SYMM_KERNELS_CPU_FLOAT_ENVIRONMENT_H_

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace symm::cpu {

// Compilers move arithmetic past this as if it were not there, but not the calls of functions that
// they cannot see into, such as those of reduce_function().
class FloatEnvironment {
 public:
  FloatEnvironment() : saved_(get()) {
    if (changed()) [[unlikely]]
      set(kDefault);
  }
  ~FloatEnvironment() {
    if (changed()) [[unlikely]]
      set(saved_);
  }
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
  bool changed() const { return (saved_ & kControls) != kDefault; }

#if defined(__x86_64__)
  using Register = uint32_t;
  static constexpr Register kControls = 0xffc0;  // all of MXCSR but the exceptions seen so far
  static constexpr Register kDefault = 0x1f80;   // nearest, denormals kept, every exception masked
  static Register get() { return _mm_getcsr(); }
  static void set(Register value) { _mm_setcsr(value); }
#elif defined(__aarch64__)
  using Register = uint64_t;
  static constexpr Register kControls = ~Register{0};
  static constexpr Register kDefault = 0;
  static Register get() {
    Register value;
    asm volatile("mrs %0, fpcr" : "=r"(value));
    return value;
  }
  static void set(Register value) { asm volatile("msr fpcr, %0" : : "r"(value) : "memory"); }
#else
  using Register = uint32_t;
  static constexpr Register kControls = 0;
  static constexpr Register kDefault = 0;
  static Register get() { return 0; }
  static void set(Register) {}
#endif

  const Register saved_;
};

}  // namespace symm::cpu

#endif  // SYMM_KERNELS_CPU_FLOAT_ENVIRONMENT_H_
