#include "core/quote.h"

#include "core/digest.h"

namespace symm {

std::string quoted(std::string_view value) {
  constexpr size_t kMost = 200;
  std::string quote = "\"";
  for (const char c : value.substr(0, kMost)) {
    if (c == '"' || c == '\\') {
      quote += '\\';
      quote += c;
    } else if (c >= ' ' && c <= '~') {
      quote += c;
    } else {
      quote += "\\x" + hex(std::string_view(&c, 1));
    }
  }
  return quote + (value.size() > kMost ? "\"..." : "\"");
}

}  // namespace symm
