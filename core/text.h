// Words that messages share.
#ifndef SYMM_CORE_TEXT_H_
#define SYMM_CORE_TEXT_H_

#include <string>
#include <vector>

namespace symm {

// "rank 3", "ranks 1, 2 and 5", "ranks 0, 1, 2, … (61 ranks)".
std::string rank_list(const std::vector<int>& ranks);

// "0.1.0".
std::string library_version();

}  // namespace symm

#endif  // SYMM_CORE_TEXT_H_
