// Writes JSON (RFC 8259), for symm_report and symm_plan.
#ifndef SYMM_CORE_JSON_H_
#define SYMM_CORE_JSON_H_

#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace symm {

// One value, on one line. Calls in an order that makes no JSON (a value in an object without its
// key, an end without its begin, take() in the middle) throw INTERNAL.
class JsonWriter {
 public:
  JsonWriter& begin_object();
  JsonWriter& end_object();
  JsonWriter& begin_array();
  JsonWriter& end_array();
  JsonWriter& key(std::string_view name);

  // Bytes that are not UTF-8 become U+FFFD, one for each maximal part of a character that was
  // begun; control characters are escaped.
  JsonWriter& string(std::string_view value);
  JsonWriter& number(std::integral auto value) { return raw(std::to_string(value)); }
  // The shortest digits that read back as `value`; null where it is not finite.
  JsonWriter& number(double value);
  JsonWriter& boolean(bool value) { return raw(value ? "true" : "false"); }
  JsonWriter& null() { return raw("null"); }

  std::string take();

 private:
  enum class Scope { kObject, kArray };

  void begin_value();
  JsonWriter& raw(std::string_view value);
  JsonWriter& open(Scope scope, char bracket);
  JsonWriter& close(Scope scope, char bracket);
  void put_string(std::string_view value);

  std::string text_;
  std::vector<Scope> scopes_;
  bool first_ = true;  // nothing yet in the innermost scope
  bool after_key_ = false;
};

}  // namespace symm

#endif  // SYMM_CORE_JSON_H_
