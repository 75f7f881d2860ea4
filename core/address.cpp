#include "core/address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "core/error.h"
#include "core/quote.h"

namespace symm {
namespace {

constexpr size_t kMostText = 4096;
constexpr size_t kHexDigits = 32;
constexpr size_t kMostHost = 253;      // of a DNS name
constexpr size_t kMostUnixName = 107;  // sun_path without the leading NUL
constexpr std::string_view kTcp = "tcp://";
constexpr std::string_view kFile = "file://";
constexpr std::string_view kServed = "symm://";
constexpr std::string_view kEnv = "env://";

constexpr std::string_view kTcpForm =
    "expected tcp://host:port with a name, an IPv4 number or an IPv6 number in brackets as host "
    "and "
    "a port from 1 to 65535";
constexpr std::string_view kFileForm =
    "expected file:///path, an absolute path (three slashes) that every rank can read and write";
constexpr std::string_view kServedForm =
    "expected the text that symm_address_create gave, complete and unchanged";
constexpr std::string_view kForms =
    "expected tcp://host:port, file:///path, env://, or the text that symm_address_create gave";

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool is_name_character(char c) { return is_letter_or_digit(c) || c == '.' || c == '-' || c == '_'; }

bool is_name(std::string_view name, size_t most) {
  return !name.empty() && name.size() <= most &&
         std::all_of(name.begin(), name.end(), is_name_character);
}

bool is_hex(std::string_view digits) {
  return digits.size() == kHexDigits && std::all_of(digits.begin(), digits.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

// The secret of a served address stays out of messages, which end up in logs.
std::string shown(const std::string& text) {
  if (!text.starts_with(kServed)) return quoted(text);
  const size_t at = text.find('@');
  return quoted(at == std::string::npos ? "symm://..." : "symm://..." + text.substr(at));
}

[[noreturn]] void refuse(const std::string& address, std::string_view fault,
                         std::string_view form) {
  throw Error(SYMM_INVALID_ARGUMENT, text("address ", shown(address), ": ", fault, "; ", form));
}

// "" or what is wrong with it.
std::string fault_of_ipv6(std::string_view host) {
  const size_t percent = host.find('%');
  const std::string number(host.substr(0, percent));
  in6_addr ignored;
  if (host.size() > kMostHost || inet_pton(AF_INET6, number.c_str(), &ignored) != 1) {
    return text("host ", quoted(host), " is not an IPv6 number");
  }
  if (percent != std::string_view::npos && !is_name(host.substr(percent + 1), kMostHost)) {
    return text("host ", quoted(host), " has a malformed interface after the %");
  }
  return "";
}

std::string fault_of_host(std::string_view host) {
  if (host.empty()) return "the host is missing";
  if (host.find(':') != std::string_view::npos) return fault_of_ipv6(host);
  if (!is_name(host, kMostHost)) {
    return text("host ", quoted(host), " is neither a name nor a number");
  }
  const bool number = host.find_first_not_of("0123456789.") == std::string_view::npos;
  in_addr ignored;
  if (number && inet_pton(AF_INET, std::string(host).c_str(), &ignored) != 1) {
    return text("host ", quoted(host), " is not an IPv4 number");
  }
  return "";
}

std::string fault_of_port(std::string_view digits, uint16_t* port) {
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), *port);
  if (error == std::errc() && end == digits.data() + digits.size() && *port != 0) return "";
  return digits.empty() ? "the port is missing"
                        : text("port ", quoted(digits), " is not a number from 1 to 65535");
}

// "host:port" or "[IPv6]:port", nothing else. "" or what is wrong with it.
std::string fault_of_endpoint(std::string_view written, Endpoint* endpoint) {
  std::string_view host, port;
  if (written.starts_with('[')) {
    const size_t close = written.find(']');
    if (close == std::string_view::npos) return "the closing bracket of the host is missing";
    host = written.substr(1, close - 1);
    const std::string_view rest = written.substr(close + 1);
    if (rest.empty()) return "the port is missing";
    if (!rest.starts_with(':')) return text(quoted(rest), " follows the closing bracket");
    port = rest.substr(1);
    if (std::string fault = fault_of_ipv6(host); !fault.empty()) return fault;
  } else {
    const size_t colon = written.find(':');
    if (colon != std::string_view::npos && written.find(':', colon + 1) != std::string_view::npos) {
      return "there is more than one colon; write an IPv6 number in brackets";
    }
    host = written.substr(0, colon);
    if (std::string fault = fault_of_host(host); !fault.empty()) return fault;
    if (colon == std::string_view::npos) return "the port is missing";
    port = written.substr(colon + 1);
  }
  endpoint->host = host;
  return fault_of_port(port, &endpoint->port);
}

Endpoint parse_endpoint(const std::string& address, std::string_view written,
                        std::string_view form) {
  Endpoint endpoint;
  const std::string fault = fault_of_endpoint(written, &endpoint);
  if (!fault.empty()) refuse(address, fault, form);
  return endpoint;
}

Address parse_tcp(const std::string& text, const Environment& environment) {
  const std::string_view written = std::string_view(text).substr(kTcp.size());
  const size_t junk = written.find_first_of("/?#");
  if (junk != std::string_view::npos) {
    refuse(text, symm::text(quoted(written.substr(junk)), " follows the port"), kTcpForm);
  }
  Address address;
  address.kind = Address::Kind::kTcp;
  address.endpoints = {parse_endpoint(text, written, kTcpForm)};
  address.token = read_token(environment, "");
  return address;
}

// The path is taken as it stands: no percent-decoding, as in PyTorch's file:// init method, so that
// a path with a % in it means itself.
Address parse_file(const std::string& text, const Environment& environment) {
  Address address;
  address.kind = Address::Kind::kFile;
  address.path = text.substr(kFile.size());
  if (!address.path.starts_with('/')) refuse(text, "the path is not absolute", kFileForm);
  if (address.path.ends_with('/')) refuse(text, "the path names no file", kFileForm);
  address.token = read_token(environment, "");
  return address;
}

// The text up to `separator`, which is removed with it; all of it where there is none.
std::string_view take_until(std::string_view* rest, char separator) {
  const size_t at = rest->find(separator);
  const std::string_view taken = rest->substr(0, at);
  rest->remove_prefix(at == std::string_view::npos ? rest->size() : at + 1);
  return taken;
}

Address parse_served(const std::string& text) {
  if (text.size() >= SYMM_ADDRESS_SIZE) {
    refuse(text, symm::text("it has ", text.size(), " characters, at most 511 are possible"),
           kServedForm);
  }
  std::string_view rest = std::string_view(text).substr(kServed.size());
  Address address;
  address.kind = Address::Kind::kServed;
  address.token = take_until(&rest, '@');
  if (!is_hex(address.token)) refuse(text, "its token is not 32 hex digits", kServedForm);

  const size_t slash = rest.find('/');
  if (slash == std::string_view::npos) refuse(text, "it ends before the host id", kServedForm);
  std::string_view endpoints = rest.substr(0, slash);
  rest.remove_prefix(slash + 1);
  for (bool more = true; more;) {
    more = endpoints.find(',') != std::string_view::npos;
    address.endpoints.push_back(parse_endpoint(text, take_until(&endpoints, ','), kServedForm));
  }

  const bool has_unix_name = rest.find('/') != std::string_view::npos;
  address.host_id = take_until(&rest, '/');
  if (!is_hex(address.host_id)) refuse(text, "its host id is not 32 hex digits", kServedForm);
  if (has_unix_name) {
    if (!is_name(rest, kMostUnixName)) refuse(text, "its socket name is malformed", kServedForm);
    Endpoint local;
    local.unix_name = rest;
    address.endpoints.insert(address.endpoints.begin(), local);
  }
  return address;
}

}  // namespace

bool is_env_address(const std::string& text) { return text == kEnv; }

Address parse_address(const std::string& text, const Environment& environment) {
  if (text.size() > kMostText) {
    refuse(text, symm::text("it has ", text.size(), " bytes, at most ", kMostText, " are allowed"),
           kForms);
  }
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c < 0x20 || c == 0x7f) {
      refuse(text, symm::text("there is a control character at byte ", i), kForms);
    }
  }
  if (text.starts_with(kTcp)) return parse_tcp(text, environment);
  if (text.starts_with(kFile)) return parse_file(text, environment);
  if (text.starts_with(kServed)) return parse_served(text);
  if (text.starts_with(kEnv)) refuse(text, "nothing may follow env://", kForms);
  refuse(text, text.empty() ? "it is empty" : "its form is unknown", kForms);
}

std::optional<Endpoint> parse_tcp_endpoint(const std::string& host, const std::string& port,
                                           std::string* fault) {
  const bool bracketed = host.size() > 2 && host.starts_with('[') && host.ends_with(']');
  Endpoint endpoint;
  endpoint.host = bracketed ? host.substr(1, host.size() - 2) : host;
  *fault = bracketed ? fault_of_ipv6(endpoint.host) : fault_of_host(endpoint.host);
  if (fault->empty()) *fault = fault_of_port(port, &endpoint.port);
  if (!fault->empty()) return std::nullopt;
  return endpoint;
}

std::string format_served_address(const Address& address) {
  // The longest host, both hex fields and the longest unix name together fit: the first endpoint is
  // never left out.
  static_assert(kServed.size() + 2 * kHexDigits + 2 + kMostHost + sizeof "[]:65535" +
                    kMostUnixName + 1 <
                SYMM_ADDRESS_SIZE);
  std::string tail = "/" + address.host_id;
  std::string written = std::string(kServed) + address.token + "@";
  const size_t before = written.size();
  bool fits = true;
  for (const Endpoint& endpoint : address.endpoints) {
    if (endpoint.is_unix()) tail += "/" + endpoint.unix_name;
  }
  for (const Endpoint& endpoint : address.endpoints) {
    if (endpoint.is_unix()) continue;
    const bool six = endpoint.host.find(':') != std::string::npos;
    const std::string one = (written.size() == before ? "" : ",") +
                            (six ? "[" + endpoint.host + "]" : endpoint.host) + ":" +
                            std::to_string(endpoint.port);
    // Nothing after the first that does not fit, so that what is left out is what comes last.
    fits = fits && written.size() + one.size() + tail.size() < SYMM_ADDRESS_SIZE;
    if (fits) written += one;
  }
  written += tail;
  try {
    (void)parse_served(written);
  } catch (const Error& error) {
    throw Error(SYMM_INTERNAL, text("a served address cannot be read back: ", error.what()));
  }
  return written;
}

}  // namespace symm
