#include "core/json.h"

#include <charconv>
#include <cmath>
#include <utility>

#include "core/error.h"

namespace symm {
namespace {

[[noreturn]] void misuse(const char* what) {
  throw Error(SYMM_INTERNAL, text("JSON writer: ", what));
}

unsigned char byte_at(std::string_view bytes, size_t i) {
  return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0;
}

struct Character {
  size_t length;  // bytes
  bool valid;
};

// The character that `bytes`, not empty, begin with, by table 3-7 of the Unicode standard: no
// overlong forms, no surrogates, nothing above U+10FFFF. Where it is invalid, the part of it that
// could have become one.
Character first_character(std::string_view bytes) {
  const unsigned char lead = byte_at(bytes, 0);
  if (lead < 0x80) return {1, true};
  if (lead < 0xc2 || lead > 0xf4) return {1, false};
  const size_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  const unsigned char least = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  const unsigned char most = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  for (size_t i = 1; i < length; ++i) {
    const unsigned char next = byte_at(bytes, i);
    if (next < (i == 1 ? least : 0x80) || next > (i == 1 ? most : 0xbf)) return {i, false};
  }
  return {length, true};
}

}  // namespace

void JsonWriter::begin_value() {
  if (scopes_.empty()) {
    if (!first_) misuse("a second value");
  } else if (scopes_.back() == Scope::kObject) {
    if (!after_key_) misuse("a value without a key");
  } else if (!first_) {
    text_ += ',';
  }
  first_ = after_key_ = false;
}

JsonWriter& JsonWriter::raw(std::string_view value) {
  begin_value();
  text_ += value;
  return *this;
}

JsonWriter& JsonWriter::open(Scope scope, char bracket) {
  begin_value();
  text_ += bracket;
  scopes_.push_back(scope);
  first_ = true;
  return *this;
}

JsonWriter& JsonWriter::close(Scope scope, char bracket) {
  if (scopes_.empty() || scopes_.back() != scope) misuse("an end without its begin");
  if (after_key_) misuse("a key without a value");
  text_ += bracket;
  scopes_.pop_back();
  first_ = false;
  return *this;
}

JsonWriter& JsonWriter::begin_object() { return open(Scope::kObject, '{'); }
JsonWriter& JsonWriter::end_object() { return close(Scope::kObject, '}'); }
JsonWriter& JsonWriter::begin_array() { return open(Scope::kArray, '['); }
JsonWriter& JsonWriter::end_array() { return close(Scope::kArray, ']'); }

JsonWriter& JsonWriter::key(std::string_view name) {
  if (scopes_.empty() || scopes_.back() != Scope::kObject) misuse("a key outside an object");
  if (after_key_) misuse("a key after a key");
  if (!first_) text_ += ',';
  put_string(name);
  text_ += ':';
  after_key_ = true;
  return *this;
}

JsonWriter& JsonWriter::string(std::string_view value) {
  begin_value();
  put_string(value);
  return *this;
}

JsonWriter& JsonWriter::number(double value) {
  if (!std::isfinite(value)) return null();
  // to_chars and not a stream: it knows no locale, and no decimal comma.
  char digits[32];
  const auto [end, error] = std::to_chars(digits, digits + sizeof digits, value);
  if (error != std::errc()) misuse("a number that is too long");
  return raw(std::string_view(digits, static_cast<size_t>(end - digits)));
}

void JsonWriter::put_string(std::string_view value) {
  constexpr char kHex[] = "0123456789abcdef";
  text_ += '"';
  while (!value.empty()) {
    const auto [length, valid] = first_character(value);
    const char c = value[0];
    if (!valid) {
      text_ += "\xef\xbf\xbd";
    } else if (c == '"' || c == '\\') {
      text_ += '\\';
      text_ += c;
    } else if (c == '\n') {
      text_ += "\\n";
    } else if (c == '\t') {
      text_ += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      text_ += "\\u00";
      text_ += kHex[c >> 4];
      text_ += kHex[c & 15];
    } else {
      text_ += value.substr(0, length);
    }
    value.remove_prefix(length);
  }
  text_ += '"';
}

std::string JsonWriter::take() {
  if (first_ || !scopes_.empty()) misuse("taken before it is complete");
  first_ = true;
  return std::exchange(text_, "");
}

}  // namespace symm
