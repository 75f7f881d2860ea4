// Words that messages share.
#ifndef SYMM_CORE_TEXT_H_
#define SYMM_CORE_TEXT_H_

#include <string>
#include <vector>

namespace symm {

// "rank 3", "ranks 1, 2 and 5", "ranks 0, 1, 2, … (61 ranks)".
std::string rank_list(const std::vector<int>& ranks);

// Of a rank that has left and cannot be waited for: who, and in which call it is missed.
std::string has_left_text(int rank, const std::string& needed_in);

// Of descriptors that other ranks sent and this process had no room for.
std::string fds_lost_text();

// "0.1.0".
std::string library_version();

}  // namespace symm

#endif  // SYMM_CORE_TEXT_H_
