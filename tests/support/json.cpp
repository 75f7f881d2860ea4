#include "tests/support/json.h"

#include <cctype>
#include <cstdlib>
#include <stdexcept>

namespace symm_test {
namespace {

class Parser {
 public:
  explicit Parser(const std::string& text) : text_(text) {}

  Json document() {
    Json result = value(0);
    space();
    if (at_ != text_.size()) fail("text after the value");
    return result;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error("not JSON at byte " + std::to_string(at_) + ": " + what + ": " +
                             text_.substr(at_, 40));
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void space() {
    while (peek() == ' ' || peek() == '\n' || peek() == '\t' || peek() == '\r') ++at_;
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void need(const std::string& word) {
    if (text_.compare(at_, word.size(), word) != 0) fail("expected " + word);
    at_ += word.size();
  }

  Json value(int depth) {
    if (depth > 64) fail("nested too deeply");
    space();
    Json result;
    switch (peek()) {
      case '{':
        object(&result, depth);
        break;
      case '[':
        array(&result, depth);
        break;
      case '"':
        result.kind = Json::Kind::kString;
        result.string = string();
        break;
      case 't':
      case 'f':
        result.kind = Json::Kind::kBool;
        result.boolean = peek() == 't';
        need(result.boolean ? "true" : "false");
        break;
      case 'n':
        need("null");
        break;
      default:
        number(&result);
    }
    return result;
  }

  void object(Json* result, int depth) {
    result->kind = Json::Kind::kObject;
    need("{");
    space();
    if (take('}')) return;
    do {
      space();
      const std::string key = string();
      space();
      need(":");
      if (!result->members.emplace(key, value(depth + 1)).second) fail("repeated key " + key);
      space();
    } while (take(','));
    need("}");
  }

  void array(Json* result, int depth) {
    result->kind = Json::Kind::kArray;
    need("[");
    space();
    if (take(']')) return;
    do {
      result->items.push_back(value(depth + 1));
      space();
    } while (take(','));
    need("]");
  }

  std::string string() {
    need("\"");
    std::string result;
    while (!take('"')) {
      const auto c = static_cast<unsigned char>(peek());
      if (c < 0x20) fail("a control character or the end inside a string");
      ++at_;
      result += c == '\\' ? escape() : static_cast<char>(c);
    }
    return result;
  }

  char escape() {
    const char c = peek();
    ++at_;
    switch (c) {
      case 'b':
        return '\b';
      case 'f':
        return '\f';
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case '"':
      case '\\':
      case '/':
        return c;
      case 'u': {
        for (int i = 0; i < 4; ++i) {
          if (!isxdigit(static_cast<unsigned char>(peek()))) fail("a bad \\u escape");
          ++at_;
        }
        const long code = strtol(text_.substr(at_ - 4, 4).c_str(), nullptr, 16);
        return code < 0x80 ? static_cast<char>(code) : '?';
      }
      default:
        fail("an unknown escape");
    }
  }

  void digits() {
    if (!isdigit(static_cast<unsigned char>(peek()))) fail("expected a digit");
    while (isdigit(static_cast<unsigned char>(peek()))) ++at_;
  }

  void number(Json* result) {
    const size_t start = at_;
    take('-');
    if (!take('0')) digits();
    if (take('.')) digits();
    if (take('e') || take('E')) {
      if (!take('+')) take('-');
      digits();
    }
    result->kind = Json::Kind::kNumber;
    result->number = strtod(text_.substr(start, at_ - start).c_str(), nullptr);
  }

  const std::string& text_;
  size_t at_ = 0;
};

}  // namespace

const Json& Json::operator[](const std::string& key) const {
  static const Json kMissing;
  const auto found = members.find(key);
  return found == members.end() ? kMissing : found->second;
}

Json parse_json(const std::string& text) { return Parser(text).document(); }

}  // namespace symm_test
