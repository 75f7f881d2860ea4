// The text of an address: a caller's, or what another process handed on.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

#include "core/address.h"
#include "core/error.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void check_message(const symm::Error& error) {
  require(error.status() == SYMM_INVALID_ARGUMENT);
  const std::string message = error.what();
  require(message.size() < 4096);
  for (const char c : message) require(c >= ' ' && c <= '~');
}

void check_endpoint(const symm::Endpoint& endpoint) {
  require(endpoint.is_unix() ? endpoint.unix_name.size() <= 107
                             : !endpoint.host.empty() && endpoint.port != 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const symm::Environment environment = [](const std::string&) { return std::nullopt; };
  try {
    const symm::Address address = symm::parse_address(text, environment);
    for (const symm::Endpoint& endpoint : address.endpoints) check_endpoint(endpoint);
    switch (address.kind) {
      case symm::Address::Kind::kServed:
        require(symm::parse_address(symm::format_served_address(address), environment).endpoints ==
                address.endpoints);
        break;
      case symm::Address::Kind::kTcp:
        require(address.endpoints.size() == 1);
        break;
      case symm::Address::Kind::kFile:
        require(address.path.starts_with('/') && "file://" + address.path == text);
        break;
      case symm::Address::Kind::kUnix:
      case symm::Address::Kind::kStore:
        std::abort();  // of launchers only
    }
  } catch (const symm::Error& error) {
    check_message(error);
  }

  const size_t middle = text.find('\n');
  if (middle != std::string::npos) {
    std::string fault;
    const auto endpoint =
        symm::parse_tcp_endpoint(text.substr(0, middle), text.substr(middle + 1), &fault);
    require(endpoint.has_value() == fault.empty());
    if (endpoint) check_endpoint(*endpoint);
  }
  return 0;
}
