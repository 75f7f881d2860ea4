#include "core/json.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <limits>

#include "core/error.h"

namespace symm {
namespace {

std::string json_string(std::string_view value) { return JsonWriter().string(value).take(); }

TEST(JsonWriter, WritesNestedObjectsAndArrays) {
  JsonWriter json;
  json.begin_object().key("a").number(1).key("b").begin_array();
  json.string("x").boolean(true).boolean(false).null().begin_object().end_object();
  json.begin_array().end_array().end_array().key("c").number(2.5).end_object();
  EXPECT_EQ(json.take(), R"({"a":1,"b":["x",true,false,null,{},[]],"c":2.5})");
}

TEST(JsonWriter, WritesTheExtremesOfIntegers) {
  EXPECT_EQ(JsonWriter().number(std::numeric_limits<int64_t>::min()).take(),
            "-9223372036854775808");
  EXPECT_EQ(JsonWriter().number(std::numeric_limits<uint64_t>::max()).take(),
            "18446744073709551615");
}

TEST(JsonWriter, DoublesReadBackAsTheyWere) {
  for (const double value :
       {0.0, -0.0, 0.1, 1e300, -1e-300, 1.0 / 3, 5e-324, 1.7976931348623157e308}) {
    EXPECT_EQ(std::strtod(JsonWriter().number(value).take().c_str(), nullptr), value);
  }
}

TEST(JsonWriter, NumbersThatJsonLacksBecomeNull) {
  EXPECT_EQ(JsonWriter().number(std::numeric_limits<double>::infinity()).take(), "null");
  EXPECT_EQ(JsonWriter().number(std::numeric_limits<double>::quiet_NaN()).take(), "null");
}

TEST(JsonWriter, EscapesQuotesBackslashesAndControlCharacters) {
  EXPECT_EQ(json_string("a\"b\\c"), R"("a\"b\\c")");
  EXPECT_EQ(json_string(std::string_view("\0\x01\n\t\r\x1f\x7f", 7)),
            R"("\u0000\u0001\n\t\u000d\u001f\u007f")");
}

TEST(JsonWriter, KeysAreEscapedToo) {
  EXPECT_EQ(JsonWriter().begin_object().key("\"").number(1).end_object().take(), R"({"\"":1})");
}

TEST(JsonWriter, KeepsValidUtf8) {
  for (const char* valid :
       {"\xc3\xbc", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xed\x9f\xbf", "\xee\x80\x80",
        "\xf4\x8f\xbf\xbf", "\xe0\xa0\x80", "\xf0\x90\x80\x80"}) {
    EXPECT_EQ(json_string(valid), std::string("\"") + valid + "\"");
  }
}

TEST(JsonWriter, ReplacesWhatIsNotUtf8) {
  const std::string replacement = "\xef\xbf\xbd";
  const auto expect = [&](const char* invalid, int replacements, const std::string& rest = "") {
    std::string expected = "\"";
    for (int i = 0; i < replacements; ++i) expected += replacement;
    EXPECT_EQ(json_string(invalid), expected + rest + "\"") << invalid;
  };
  expect("\x80", 1);
  expect("\xff", 1);
  expect("\xc0\x80", 2);          // overlong
  expect("\xe0\x80\x80", 3);      // overlong
  expect("\xed\xa0\x80", 3);      // a surrogate
  expect("\xf4\x90\x80\x80", 4);  // above U+10FFFF
  expect("\xe2\x82", 1);          // cut off at the end
  expect("\xf0\x9f\x98", 1);
  expect("\xe2\x82z", 1, "z");  // cut off by another character, which stays
  expect("\xc3\"", 1, "\\\"");  // a quote may not hide in it
}

TEST(JsonWriter, RefusesAnOrderThatMakesNoJson) {
  EXPECT_THROW(JsonWriter().take(), Error);
  EXPECT_THROW(JsonWriter().begin_object().take(), Error);
  EXPECT_THROW(JsonWriter().begin_object().number(1), Error);
  EXPECT_THROW(JsonWriter().begin_object().key("a").end_object(), Error);
  EXPECT_THROW(JsonWriter().begin_object().key("a").key("b"), Error);
  EXPECT_THROW(JsonWriter().begin_array().key("a"), Error);
  EXPECT_THROW(JsonWriter().begin_array().end_object(), Error);
  EXPECT_THROW(JsonWriter().end_array(), Error);
  EXPECT_THROW(JsonWriter().key("a"), Error);
  EXPECT_THROW(JsonWriter().number(1).number(2), Error);
}

}  // namespace
}  // namespace symm
