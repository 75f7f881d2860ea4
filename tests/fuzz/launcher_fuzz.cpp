// The environment of a process: lines NAME=VALUE, as env prints them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/launcher.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

std::map<std::string, std::string> variables_of(std::string_view lines) {
  std::map<std::string, std::string> variables;
  while (!lines.empty()) {
    const std::string_view line = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(line.size() + 1, lines.size()));
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    variables[std::string(line.substr(0, equals))] = line.substr(equals + 1);
  }
  return variables;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto variables = variables_of({reinterpret_cast<const char*>(data), size});
  const symm::Environment environment =
      [&variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
  require(symm::launcher_local_rank(environment) >= -1);
  try {
    const symm::Launcher launcher = symm::read_launcher(environment);
    require(0 <= launcher.rank && launcher.rank < launcher.size);
    require(-1 <= launcher.local_rank && launcher.local_rank < launcher.size);
    require(launcher.address.token.size() <= symm::kMostToken);
    require(launcher.address.endpoints.size() == 1);
    const symm::Endpoint& endpoint = launcher.address.endpoints[0];
    require(launcher.address.kind == symm::Address::Kind::kUnix
                ? endpoint.is_unix() && endpoint.unix_name.size() <= 107
                : (launcher.address.kind == symm::Address::Kind::kTcp ||
                   launcher.address.kind == symm::Address::Kind::kStore) &&
                      endpoint.port != 0 && !launcher.address.store_scope.empty());
  } catch (const symm::Error& error) {
    require(error.status() == SYMM_INVALID_ARGUMENT || error.status() == SYMM_UNSUPPORTED);
    for (const char* c = error.what(); *c != '\0'; ++c) require(*c >= ' ' && *c <= '~');
  }
  return 0;
}
