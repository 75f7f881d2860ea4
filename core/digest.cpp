#include "core/digest.h"

#include <cstdint>

namespace symm {
namespace {

// FNV-1a from an offset basis of the seed's, then splitmix64's finaliser, so that every bit of the
// result depends on every byte of the input.
uint64_t mix64(std::string_view input, uint64_t seed) {
  uint64_t hash = 0xcbf29ce484222325u ^ seed;
  for (const char c : input) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9u;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebu;
  return hash ^ (hash >> 31);
}

}  // namespace

std::string digest_hex(std::string_view input) {
  std::string bytes;
  // Two halves that differ in their seed: the low bits of the basis reach every bit of the product.
  for (const uint64_t seed : {0x9e3779b97f4a7c15u, 0xc2b2ae3d27d4eb4fu}) {
    const uint64_t half = mix64(input, seed);
    for (int shift = 56; shift >= 0; shift -= 8) bytes += static_cast<char>(half >> shift);
  }
  return hex(bytes);
}

std::string hex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string digits;
  digits.reserve(2 * bytes.size());
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    digits += kDigits[byte >> 4];
    digits += kDigits[byte & 15];
  }
  return digits;
}

}  // namespace symm
