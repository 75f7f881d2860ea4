#include "core/environment.h"

#include <cstdlib>

#include "core/digest.h"
#include "core/error.h"

namespace symm {

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

std::string read_token(const Environment& environment, const std::string& job) {
  const std::optional<std::string> token = environment("SYMM_TOKEN");
  if (!token || token->empty()) return job.size() <= kMostToken ? job : digest_hex(job);
  if (token->size() > kMostToken) {
    throw Error(SYMM_INVALID_ARGUMENT, text("SYMM_TOKEN has ", token->size(), " bytes, at most ",
                                            kMostToken, " are allowed; set a shorter one"));
  }
  return *token;
}

}  // namespace symm
