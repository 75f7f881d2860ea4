// How long things may take in this build: sanitizers slow everything, so bounds widen with them.
#ifndef SYMM_TESTS_SUPPORT_PACE_H_
#define SYMM_TESTS_SUPPORT_PACE_H_

#include <chrono>

namespace symm_test {

#if defined(__SANITIZE_THREAD__)
#define SYMM_TEST_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SYMM_TEST_TSAN 1
#endif
#endif

#if defined(__SANITIZE_ADDRESS__)
#define SYMM_TEST_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SYMM_TEST_ASAN 1
#endif
#endif

#if defined(SYMM_TEST_TSAN)
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif
#if defined(SYMM_TEST_ASAN)
constexpr bool kAddressSanitizer = true;
#else
constexpr bool kAddressSanitizer = false;
#endif
constexpr bool kSanitized = kThreadSanitizer || kAddressSanitizer;

// Time bounds are multiplied by this, amounts of work divided.
constexpr int kSlowdown = kThreadSanitizer ? 8 : kAddressSanitizer ? 4 : 1;

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace symm_test

#endif  // SYMM_TESTS_SUPPORT_PACE_H_
