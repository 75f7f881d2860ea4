// Environment variables, as a function so that tests need not change the process's own.
#ifndef SYMM_CORE_ENVIRONMENT_H_
#define SYMM_CORE_ENVIRONMENT_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

namespace symm {

// The value of a variable; nothing where it is not set. An empty value is a value.
using Environment = std::function<std::optional<std::string>(const std::string&)>;
Environment process_environment();

constexpr size_t kMostToken = 256;  // bytes

// The token that keeps jobs apart which meet at one address: SYMM_TOKEN if set and not empty, else
// `job` (its digest if it is longer than kMostToken). Throws INVALID_ARGUMENT for a SYMM_TOKEN of
// more than kMostToken bytes.
std::string read_token(const Environment& environment, const std::string& job);

}  // namespace symm

#endif  // SYMM_CORE_ENVIRONMENT_H_
