// Short names for long or odd strings.
#ifndef SYMM_CORE_DIGEST_H_
#define SYMM_CORE_DIGEST_H_

#include <string>
#include <string_view>

namespace symm {

// 128 bits of `input` as 32 hex digits, the same on every machine and in every version of symm. Not
// secret and not proof against malice: it only keeps distinct inputs distinct.
std::string digest_hex(std::string_view input);

// `bytes` as lower-case hex digits, two a byte.
std::string hex(std::string_view bytes);

}  // namespace symm

#endif  // SYMM_CORE_DIGEST_H_
