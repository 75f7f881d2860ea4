// What symm-doctor says, run as a program.
#ifndef SYMM_TESTS_SUPPORT_DIAGNOSIS_H_
#define SYMM_TESTS_SUPPORT_DIAGNOSIS_H_

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "tests/support/json.h"
#include "tests/support/program.h"

namespace symm_test {

// What an environment has: "NAME=value".
using Variables = std::vector<std::string>;
std::string number(const std::string& name, long value);
// `variables` with one of them changed; "NAME" alone takes it away.
Variables but(Variables variables, const std::string& change);
// RANK and the rest, of rank `rank` of a job of two.
Variables job_of_two(int rank, int port);

// "LD_LIBRARY_PATH=..." with the double of that name before what is there.
std::string with_double(const std::string& name);
// "LD_PRELOAD=..." of the double of that name.
std::string preloaded(const std::string& name);

struct Finding {
  std::string section, name, status, detail, remedy;  // "" for no remedy
};

struct Diagnosis {
  int status = -1;
  double seconds = 0;
  Json json;
  std::vector<Finding> findings;

  // The one of that name; an empty one where there is none.
  Finding find(const std::string& name) const;
  bool has(const std::string& name) const { return !find(name).name.empty(); }
};

// Where symm-doctor lies in this build.
std::string doctor();

// Of what it printed with --json. Fails the test where a warning or failure has no remedy, or the
// exit status is not that of the findings.
Diagnosis read_diagnosis(const Ended& ended);

// Runs it with --json and `arguments` where nothing but `variables` says anything of a job.
Diagnosis diagnose(const Variables& variables, const std::vector<std::string>& arguments = {});

// EXPECT_TRUE(says(diagnosis, "devices", "warning", {"rank 1"}, {"SYMM_CPU"})): a finding of that
// name and status, with each text in its detail and in its remedy.
testing::AssertionResult says(const Diagnosis& diagnosis, const std::string& name,
                              const std::string& status, std::initializer_list<std::string> details,
                              std::initializer_list<std::string> remedies = {});

}  // namespace symm_test

#endif  // SYMM_TESTS_SUPPORT_DIAGNOSIS_H_
