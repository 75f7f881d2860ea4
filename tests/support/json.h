// A small strict JSON reader (RFC 8259), for what symm_report and symm_plan write.
#ifndef SYMM_TESTS_SUPPORT_JSON_H_
#define SYMM_TESTS_SUPPORT_JSON_H_

#include <map>
#include <string>
#include <vector>

namespace symm_test {

struct Json {
  enum class Kind { kNull, kBool, kNumber, kString, kArray, kObject };
  Kind kind = Kind::kNull;
  bool boolean = false;
  double number = 0;
  std::string string;
  std::vector<Json> items;
  std::map<std::string, Json> members;

  bool has(const std::string& key) const { return members.count(key) != 0; }
  // A null value where the key is missing.
  const Json& operator[](const std::string& key) const;
};

// Throws std::runtime_error with the place where `text` is not JSON; repeated keys are refused too.
Json parse_json(const std::string& text);

}  // namespace symm_test

#endif  // SYMM_TESTS_SUPPORT_JSON_H_
