// What a test passes to the program it starts as ranks, and how the two then speak.
#ifndef SYMM_TESTS_SUPPORT_RANK_ARGUMENTS_H_
#define SYMM_TESTS_SUPPORT_RANK_ARGUMENTS_H_

#include <string>
#include <vector>

#include "tests/support/ranks.h"

namespace symm_test {

// First byte of every message from a rank.
constexpr char kAt = 'A';
constexpr char kGive = 'G';
constexpr char kFailure = 'F';
constexpr char kDone = 'D';

struct RankArguments {
  Body body = nullptr;
  int first = 0;  // rank of the first channel
  int size = 1;
  int process = 0;
  int uid = 0;
  int parent = 0;  // pid of the test, 0: none to die with
  std::string network;
  std::string address;
  std::string argument;
  std::vector<int> channels;

  std::vector<std::string> words() const;  // as argv, program name included
  static RankArguments parse(int argc, char** argv);
};

}  // namespace symm_test

#endif  // SYMM_TESTS_SUPPORT_RANK_ARGUMENTS_H_
