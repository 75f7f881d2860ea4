#include "core/address.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "core/error.h"

namespace symm {
namespace {

Environment with(std::map<std::string, std::string> variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

Address parse(const std::string& text) { return parse_address(text, with({})); }

// The message of the refusal, which must be INVALID_ARGUMENT.
std::string refusal(const std::string& text) {
  try {
    parse(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), SYMM_INVALID_ARGUMENT);
    return error.what();
  }
  return "accepted";
}

void expect_refused(const std::string& text, const std::string& part) {
  EXPECT_NE(refusal(text).find(part), std::string::npos) << text << " -> " << refusal(text);
}

const std::string kToken(32, 'a');
const std::string kHostId = "0123456789abcdef0123456789abcdef";

std::string served(const std::string& endpoints) {
  return "symm://" + kToken + "@" + endpoints + "/" + kHostId;
}

TEST(TcpAddress, TakesNamesAndNumbersOfBothFamilies) {
  const std::pair<const char*, Endpoint> cases[] = {
      {"tcp://node-1.cluster:29500", {"", "node-1.cluster", 29500}},
      {"tcp://my_host:1", {"", "my_host", 1}},
      {"tcp://10.0.0.1:65535", {"", "10.0.0.1", 65535}},
      {"tcp://[::1]:29500", {"", "::1", 29500}},
      {"tcp://[fe80::1%eth0]:29500", {"", "fe80::1%eth0", 29500}},
  };
  for (const auto& [text, endpoint] : cases) {
    const Address address = parse(text);
    EXPECT_EQ(address.kind, Address::Kind::kTcp);
    ASSERT_EQ(address.endpoints.size(), 1u);
    EXPECT_EQ(address.endpoints[0], endpoint) << text;
  }
}

TEST(TcpAddress, EveryMistakeIsNamedWithTheFormExpected) {
  const std::pair<const char*, const char*> cases[] = {
      {"tcp://", "the host is missing"},
      {"tcp://:29500", "the host is missing"},
      {"tcp://host", "the port is missing"},
      {"tcp://host:", "the port is missing"},
      {"tcp://[::1]", "the port is missing"},
      {"tcp://[::1]:", "the port is missing"},
      {"tcp://host:0", "port \"0\" is not a number from 1 to 65535"},
      {"tcp://host:65536", "port \"65536\""},
      {"tcp://host:99999999999999999999", "port \"99999999999999999999\""},
      {"tcp://host:-1", "port \"-1\""},
      {"tcp://host:+1", "port \"+1\""},
      {"tcp://host: 1", "port \" 1\""},
      {"tcp://host:1 ", "port \"1 \""},
      {"tcp://host:0x10", "port \"0x10\""},
      {"tcp://host:29500/path", "\"/path\" follows the port"},
      {"tcp://host:29500/", "\"/\" follows the port"},
      {"tcp://host:29500?rank=0", "\"?rank=0\" follows the port"},
      {"tcp://my host:29500", "neither a name nor a number"},
      {"tcp://user@host:29500", "neither a name nor a number"},
      {"tcp://h\xc3\xb6st:1", "\"h\\xc3\\xb6st\" is neither"},
      {"tcp://1.2.3:29500", "not an IPv4 number"},
      {"tcp://256.0.0.1:29500", "not an IPv4 number"},
      {"tcp://::1:29500", "write an IPv6 number in brackets"},
      {"tcp://[::1:29500", "closing bracket"},
      {"tcp://[::1]29500", "follows the closing bracket"},
      {"tcp://[host]:29500", "not an IPv6 number"},
      {"tcp://[127.0.0.1]:29500", "not an IPv6 number"},
      {"tcp://[]:29500", "not an IPv6 number"},
      {"tcp://[fe80::1%]:29500", "malformed interface"},
      {"tcp://[fe80::1%a b]:29500", "malformed interface"},
  };
  for (const auto& [text, part] : cases) {
    expect_refused(text, part);
    expect_refused(text, "expected tcp://host:port");
  }
  expect_refused("tcp://" + std::string(254, 'h') + ":1", "neither a name nor a number");
}

TEST(FileAddress, TakesAnAbsolutePathAsItStands) {
  for (const char* path : {"/scratch/meet", "/a b/c?d#e", "/100%25/x", "//double", "/t\xc3\xbc"}) {
    const Address address = parse(std::string("file://") + path);
    EXPECT_EQ(address.kind, Address::Kind::kFile);
    EXPECT_EQ(address.path, path);
    EXPECT_TRUE(address.endpoints.empty());
  }
}

TEST(FileAddress, RefusesWhatIsNoAbsolutePathOfAFile) {
  for (const char* text : {"file://", "file://relative", "file://host/path", "file://./x"}) {
    expect_refused(text, "the path is not absolute; expected file:///path");
  }
  for (const char* text : {"file:///", "file:///scratch/"}) {
    expect_refused(text, "the path names no file; expected file:///path");
  }
}

TEST(AnyAddress, UnknownFormsAreRefusedWithThoseThatExist) {
  for (const char* text : {"", "host:29500", "TCP://host:1", "http://host:1", "tcp:/host:1",
                           "file:/x", " tcp://h:1", "env://x", "env:", "symm:/"}) {
    expect_refused(text, "expected tcp://host:port, file:///path, env://");
  }
  expect_refused("env://x", "nothing may follow env://");
  expect_refused("", "it is empty");
}

TEST(AnyAddress, ControlCharactersAndExcessiveLengthsAreRefused) {
  expect_refused(std::string("file:///a\0b", 11), "control character at byte 9");
  expect_refused("tcp://host:1\n", "control character at byte 12");
  expect_refused("file:///a\x7f", "control character");
  expect_refused("file:///" + std::string(4089, 'x'), "it has 4097 bytes");
  EXPECT_EQ(parse("file:///" + std::string(4088, 'x')).path.size(), 4089u);
}

TEST(AnyAddress, AMessageIsShortPrintableAscii) {
  const std::string message = refusal("bad\n\xff\"" + std::string(3000, 'x'));
  EXPECT_LT(message.size(), 600u);
  EXPECT_NE(message.find("bad\\x0a\\xff\\\""), std::string::npos) << message;
  for (const char c : message) EXPECT_TRUE(c >= ' ' && c <= '~');
}

TEST(EnvAddress, IsExactlyThat) {
  EXPECT_TRUE(is_env_address("env://"));
  EXPECT_FALSE(is_env_address("env://x"));
  EXPECT_FALSE(is_env_address("env:"));
  EXPECT_FALSE(is_env_address(""));
}

TEST(Token, IsTheVariablesForAddressesWithoutOneOfTheirOwn) {
  const Environment environment = with({{"SYMM_TOKEN", "secret"}});
  EXPECT_EQ(parse_address("tcp://host:1", environment).token, "secret");
  EXPECT_EQ(parse_address("file:///x", environment).token, "secret");
  EXPECT_EQ(parse_address(served("host:1"), environment).token, kToken);
  EXPECT_EQ(parse("tcp://host:1").token, "");
}

TEST(Token, OfTooManyBytesIsRefused) {
  EXPECT_EQ(parse_address("tcp://h:1", with({{"SYMM_TOKEN", std::string(256, 't')}})).token.size(),
            256u);
  EXPECT_THROW(parse_address("tcp://h:1", with({{"SYMM_TOKEN", std::string(257, 't')}})), Error);
}

TEST(Token, FallsBackToTheJobHoweverLong) {
  EXPECT_EQ(read_token(with({}), "job"), "job");
  EXPECT_EQ(read_token(with({{"SYMM_TOKEN", ""}}), "job"), "job");
  EXPECT_EQ(read_token(with({{"SYMM_TOKEN", "t"}}), "job"), "t");
  const std::string job(1000, 'j');
  EXPECT_EQ(read_token(with({}), job).size(), 32u);
  EXPECT_NE(read_token(with({}), job), read_token(with({}), job + "k"));
}

TEST(ServedAddress, ComesBackAsItWasWritten) {
  Address address;
  address.kind = Address::Kind::kServed;
  address.token = kToken;
  address.host_id = kHostId;
  address.endpoints = {{"symm-0af3", "", 0},
                       {"", "10.0.0.1", 29500},
                       {"", "fd00::2", 1},
                       {"", "name.of-host", 65535}};
  const std::string text = format_served_address(address);
  EXPECT_EQ(text, "symm://" + kToken + "@10.0.0.1:29500,[fd00::2]:1,name.of-host:65535/" + kHostId +
                      "/symm-0af3");
  const Address back = parse(text);
  EXPECT_EQ(back.kind, Address::Kind::kServed);
  EXPECT_EQ(back.token, address.token);
  EXPECT_EQ(back.host_id, address.host_id);
  EXPECT_EQ(back.endpoints, address.endpoints);
}

TEST(ServedAddress, RandomOnesComeBackAndFit) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 2000; ++round) {
    Address address;
    address.kind = Address::Kind::kServed;
    address.token = random_hex(16);
    address.host_id = random_hex(16);
    if (random() % 2 != 0) {
      address.endpoints.push_back({std::string(1 + random() % 107, 's'), "", 0});
    }
    const size_t unix_names = address.endpoints.size();
    const size_t hosts = 1 + random() % 12;
    for (size_t i = 0; i < hosts; ++i) {
      const auto port = static_cast<uint16_t>(1 + random() % 65535);
      const std::string names[] = {"10.1.2." + std::to_string(random() % 256), "fd00::1:2",
                                   std::string(1 + random() % 253, 'h')};
      address.endpoints.push_back({"", names[random() % 3], port});
    }
    const std::string text = format_served_address(address);
    ASSERT_LT(text.size(), static_cast<size_t>(SYMM_ADDRESS_SIZE));
    const Address back = parse(text);
    // What is left out is the last endpoints, and never all of them.
    ASSERT_GT(back.endpoints.size(), unix_names);
    ASSERT_LE(back.endpoints.size(), address.endpoints.size());
    for (size_t i = 0; i < back.endpoints.size(); ++i) {
      ASSERT_EQ(back.endpoints[i], address.endpoints[i]);
    }
    if (back.endpoints.size() < address.endpoints.size()) {
      const Endpoint& next = address.endpoints[back.endpoints.size()];
      ASSERT_GT(text.size() + 1 + next.display().size(), 511u) << "left out though it fits";
    }
  }
}

TEST(ServedAddress, TheLongestHostAndUnixNameFit) {
  Address address;
  address.kind = Address::Kind::kServed;
  address.token = kToken;
  address.host_id = kHostId;
  address.endpoints = {{std::string(107, 's'), "", 0}, {"", std::string(253, 'h'), 65535}};
  EXPECT_EQ(parse(format_served_address(address)).endpoints, address.endpoints);
}

TEST(ServedAddress, WhatCouldNotBeReadBackIsNeverWritten) {
  Address address;
  address.kind = Address::Kind::kServed;
  address.token = kToken;
  address.host_id = kHostId;
  EXPECT_THROW(format_served_address(address), Error);  // nowhere to connect to
  address.endpoints = {{"", "a/b", 1}};
  EXPECT_THROW(format_served_address(address), Error);
  address.endpoints = {{"", "a", 0}};
  EXPECT_THROW(format_served_address(address), Error);
  address.endpoints = {{"", "a", 1}};
  EXPECT_NO_THROW(format_served_address(address));
  address.host_id = "short";
  EXPECT_THROW(format_served_address(address), Error);
}

TEST(ServedAddress, EveryDamageIsRefused) {
  const std::string good = served("10.0.0.1:29500,[::1]:2") + "/symm-x";
  ASSERT_EQ(refusal(good), "accepted");
  // Cut off anywhere but between whole parts.
  for (size_t length = 0; length < good.size(); ++length) {
    const std::string cut = good.substr(0, length);
    const bool whole = length == good.size() - 7 || length > good.size() - 6;
    EXPECT_EQ(refusal(cut) == "accepted", whole) << cut;
  }
  for (const std::string& bad : {good + "/",
                                 good + "/more",
                                 good + " ",
                                 served(""),
                                 served(","),
                                 served("host"),
                                 served("host:1,"),
                                 served(",host:1"),
                                 served("host:1,,host:2"),
                                 served("host:0"),
                                 served("[::1]"),
                                 served("::1:2"),
                                 served("host:1") + "/",
                                 served("host:1") + "/a,b",
                                 served("host:1") + "0",
                                 "symm://" + kToken + "host:1/" + kHostId,
                                 "symm://" + std::string(32, 'A') + "@host:1/" + kHostId,
                                 "symm://" + std::string(31, 'a') + "@host:1/" + kHostId,
                                 "symm://" + kToken + "@host:1/" + std::string(32, 'g'),
                                 served("host:1") + "/" + std::string(108, 's'),
                                 "symm://" + good}) {
    expect_refused(bad, "expected the text that symm_address_create gave");
  }
  expect_refused(served(std::string(253, 'a') + ":1," + std::string(253, 'b') + ":1"),
                 "at most 511");
}

TEST(ServedAddress, ItsSecretStaysOutOfMessages) {
  for (const std::string& bad : {served("host"), served("host:1") + "/x/y", "symm://" + kToken}) {
    EXPECT_EQ(refusal(bad).find(kToken), std::string::npos) << refusal(bad);
  }
}

TEST(TcpEndpoint, IsCheckedAsATcpAddressIs) {
  std::string fault;
  EXPECT_EQ(parse_tcp_endpoint("host", "1", &fault), (Endpoint{"", "host", 1}));
  EXPECT_EQ(parse_tcp_endpoint("fd00::1", "1", &fault), (Endpoint{"", "fd00::1", 1}));
  EXPECT_EQ(parse_tcp_endpoint("[fd00::1]", "1", &fault), (Endpoint{"", "fd00::1", 1}));
  for (const auto& [host, port] :
       std::initializer_list<std::pair<const char*, const char*>>{{"", "1"},
                                                                  {"host", ""},
                                                                  {"host", "x"},
                                                                  {"ho st", "1"},
                                                                  {"host:1", "1"},
                                                                  {"[host]", "1"},
                                                                  {"[", "1"},
                                                                  {"[]", "1"},
                                                                  {"1.2.3", "1"},
                                                                  {"host", "70000"}}) {
    fault.clear();
    EXPECT_EQ(parse_tcp_endpoint(host, port, &fault), std::nullopt) << host << " " << port;
    EXPECT_NE(fault, "");
  }
}

}  // namespace
}  // namespace symm
