// Text of callers and strangers inside messages.
#ifndef SYMM_CORE_QUOTE_H_
#define SYMM_CORE_QUOTE_H_

#include <string>
#include <string_view>

namespace symm {

// "abc" in double quotes, cut after 200 bytes. Bytes that are not printable ASCII become \xNN: a
// message is one line of valid UTF-8 whatever was passed in, as the languages above expect.
std::string quoted(std::string_view value);

}  // namespace symm

#endif  // SYMM_CORE_QUOTE_H_
