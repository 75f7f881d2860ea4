#include "core/text.h"

#include <cerrno>

#include "core/error.h"

namespace symm {

std::string rank_list(const std::vector<int>& ranks) {
  constexpr size_t kMostListed = 16;
  if (ranks.size() == 1) return text("rank ", ranks[0]);
  std::string list = "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i == kMostListed) return text(list, ", ... (", ranks.size(), " ranks)");
    if (i > 0) list += i + 1 == ranks.size() ? " and " : ", ";
    list += std::to_string(ranks[i]);
  }
  return list;
}

std::string has_left_text(int rank, const std::string& needed_in) {
  return text("rank ", rank, " has left (freed its communicator or exited) and is still needed in ",
              needed_in);
}

std::string fds_lost_text() {
  return text("no room for the file descriptors of other ranks: ", errno_text(EMFILE));
}

std::string library_version() {
  return text(SYMM_VERSION_MAJOR, ".", SYMM_VERSION_MINOR, ".", SYMM_VERSION_PATCH);
}

}  // namespace symm
