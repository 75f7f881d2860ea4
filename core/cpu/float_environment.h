// Makes a scope compute as IEEE 754 says by default, whatever the calling thread has set: results
// are the same bits on every rank, so no rank may flush subnormals to zero, round otherwise or
// trap.
#ifndef SYMM_CORE_CPU_FLOAT_ENVIRONMENT_H_
#define SYMM_CORE_CPU_FLOAT_ENVIRONMENT_H_

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace symm::cpu {

// Reading the control register takes up to 10 ns, writing it more: it is written only where it
// differs, and algorithms read it between posting their first word and awaiting the peer's, where
// the time is not missed. Arithmetic under it goes through function pointers, which compilers
// cannot move.
class FloatEnvironment {
 public:
  FloatEnvironment() : old_(get()) {
    if (((old_ ^ kDefault) & kMatters) != 0) set(kDefault);
  }
  ~FloatEnvironment() {
    if (((old_ ^ kDefault) & kMatters) != 0) set(old_);
  }
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr uint64_t kDefault =
      0x1f80;  // all exceptions masked, to nearest even, no FTZ or DAZ
  static constexpr uint64_t kMatters = 0xffc0;  // all but the six flags of what happened
  static uint64_t get() { return _mm_getcsr(); }
  static void set(uint64_t value) { _mm_setcsr(static_cast<uint32_t>(value)); }
#elif defined(__aarch64__)
  static constexpr uint64_t kDefault = 0;
  static constexpr uint64_t kMatters = ~uint64_t{0};
  static uint64_t get() {
    uint64_t value;
    asm volatile("mrs %0, fpcr" : "=r"(value));
    return value;
  }
  // "memory" keeps arithmetic on memory from moving across.
  static void set(uint64_t value) { asm volatile("msr fpcr, %0" : : "r"(value) : "memory"); }
#else
  static constexpr uint64_t kDefault = 0;
  static constexpr uint64_t kMatters = 0;
  static uint64_t get() { return 0; }
  static void set(uint64_t) {}
#endif

  uint64_t old_;
};

}  // namespace symm::cpu

#endif  // SYMM_CORE_CPU_FLOAT_ENVIRONMENT_H_
