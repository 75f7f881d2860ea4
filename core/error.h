// The one exception type of the library. It is thrown where a failure is known and turned into a
// symm_status at the C boundary (capi/symm.cpp), nowhere else.
#ifndef SYMM_CORE_ERROR_H_
#define SYMM_CORE_ERROR_H_

#include <cstdint>
#include <locale>
#include <sstream>
#include <stdexcept>
#include <string>

#include "capi/symm.h"

namespace symm {

constexpr int kNoRank = -1;

class Error : public std::runtime_error {
 public:
  // `message` says argument, value, rank and remedy; the boundary puts the function's name before
  // it. `rank` is the rank to blame in the communicator concerned, or kNoRank.
  Error(symm_status status, const std::string& message, int rank = kNoRank)
      : std::runtime_error(message), status_(status), rank_(rank) {}

  symm_status status() const { return status_; }
  int rank() const { return rank_; }

 private:
  symm_status status_;
  int rank_;
};

// text("rank ", 3, " of ", 4) == "rank 3 of 4".
template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream stream;
  stream.imbue(std::locale::classic());  // no digit grouping, whatever the program's locale
  (stream << ... << parts);
  return stream.str();
}

// "Connection refused (errno 111)"; with the remedy where there is one for any caller.
std::string errno_text(int error);

// Statuses after which a communicator never works again (symm.h, "Sticky errors").
constexpr bool is_sticky(symm_status status) {
  switch (status) {
    case SYMM_TIMEOUT:
    case SYMM_PEER:
    case SYMM_MISMATCH:
    case SYMM_ABORTED:
    case SYMM_CUDA:
    case SYMM_NCCL:
    case SYMM_INTERNAL:
      return true;
    default:
      return false;
  }
}

const char* status_name(int32_t status);  // "SYMM_TIMEOUT"; "SYMM_UNKNOWN" for other numbers

}  // namespace symm

#endif  // SYMM_CORE_ERROR_H_
