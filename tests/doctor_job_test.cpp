// symm-doctor as every rank of a job: whether the ranks meet, and in what they differ.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/support/calls.h"
#include "tests/support/diagnosis.h"
#include "tests/support/hosts.h"
#include "tests/support/places.h"
#include "tests/support/stranger.h"

namespace symm_test {
namespace {

Program start(const Variables& variables, Variables before = {}) {
  before.insert(before.end(), {doctor(), "--json"});
  return Program(before, plain_environment(variables));
}

// ---- The ranks of a job ----

TEST(DoctorJob, ItsRanksMeetAndAreCompared) {
  const int port = free_port();
  Program other = start(job_of_two(1, port));
  const Diagnosis first = read_diagnosis(start(job_of_two(0, port)).finish());
  const Diagnosis second = read_diagnosis(other.finish());
  for (const Diagnosis* one : {&first, &second}) {
    EXPECT_TRUE(says(*one, "meeting", "ok", {"all 2 ranks met"}));
    EXPECT_TRUE(says(*one, "meeting place", "ok", {"the ranks have met there"}));
    EXPECT_TRUE(says(*one, "symm of all ranks", "ok", {"every rank has"}));
    EXPECT_TRUE(one->has("devices"));
    EXPECT_TRUE(one->has("NCCL of all ranks"));
    EXPECT_EQ(one->status, 0);
  }
  EXPECT_EQ(first.json["rank"].number, 0);
  EXPECT_EQ(second.json["rank"].number, 1);
}

TEST(DoctorJob, RanksThatDifferAreNamedOnEveryRank) {
  const int port = free_port();
  std::vector<std::unique_ptr<Program>> programs;
  for (int rank = 0; rank < 3; ++rank) {
    Variables variables = but(job_of_two(rank, port), "WORLD_SIZE=3");
    if (rank == 1) {
      variables.insert(variables.end(), {preloaded("other_symm"), "SYMM_TEST_VERSION=2003"});
    }
    programs.push_back(std::make_unique<Program>(std::vector<std::string>{doctor(), "--json"},
                                                 plain_environment(variables)));
  }
  for (const auto& program : programs) {
    const Diagnosis diagnosis = read_diagnosis(program->finish());
    EXPECT_TRUE(says(diagnosis, "symm of all ranks", "warning", {" on ranks 0, 2; 0.2.3 on rank 1"},
                     {"one version of symm"}));
  }
}

TEST(DoctorJob, RanksWithDifferentNcclsAreNamedOnEveryRank) {
  const Variables with_nccl = {with_double("whole_nccl"), "SYMM_TEST_NCCL_VERSION=22809"};
  const int port = free_port();
  std::vector<std::unique_ptr<Program>> programs;
  for (int rank = 0; rank < 3; ++rank) {
    Variables variables = but(job_of_two(rank, port), "WORLD_SIZE=3");
    variables.insert(variables.end(), with_nccl.begin(), with_nccl.end());
    if (rank == 1) variables = but(variables, "SYMM_TEST_NCCL_VERSION=22605");
    programs.push_back(std::make_unique<Program>(std::vector<std::string>{doctor(), "--json"},
                                                 plain_environment(variables)));
  }
  for (const auto& program : programs) {
    EXPECT_TRUE(says(read_diagnosis(program->finish()), "NCCL of all ranks", "warning",
                     {"2.28.9 on ranks 0, 2; 2.26.5 without windows on rank 1"},
                     {"one version of NCCL"}));
  }
}

TEST(DoctorJob, RanksWhoseVariablesDoNotAgreeAreTold) {
  const int port = free_port();
  const Variables good = job_of_two(0, port);
  const struct {
    Variables other;
    std::string said;
  } cases[] = {
      {but(job_of_two(1, port), "WORLD_SIZE=3"), "size differs"},
      {job_of_two(0, port), "claim rank 0"},
      {but(job_of_two(1, port), "SYMM_TOKEN=theirs"), "another job"},
  };
  for (const auto& one : cases) {
    Program first = start(good);
    const Diagnosis second = read_diagnosis(start(one.other).finish());
    EXPECT_TRUE(says(second, "meeting", "failure", {one.said}, {"agree on every rank"}));
    EXPECT_EQ(second.status, 1);
    read_diagnosis(first.finish());
  }
}

TEST(DoctorJob, ARankThatDoesNotComeIsNamedWithinABound) {
  const int port = free_port();
  Program other = start(but(job_of_two(0, port), "WORLD_SIZE=3"));
  Program third = start(but(job_of_two(2, port), "WORLD_SIZE=3"));
  for (Program* one : {&other, &third}) {
    const Diagnosis diagnosis = read_diagnosis(one->finish());
    EXPECT_TRUE(says(diagnosis, "meeting", "failure", {"rank 1 of 3 did not arrive"},
                     {"as every rank", "unset the launcher's variables"}));
    EXPECT_EQ(diagnosis.status, 1);
    EXPECT_LT(diagnosis.seconds, 25 * kSlowdown);
    EXPECT_FALSE(diagnosis.has("devices"));
  }
}

TEST(DoctorJob, WhoHasRank0sPortIsSaid) {
  const Stranger mute("", false);
  const Diagnosis diagnosis = diagnose(job_of_two(0, mute.port));
  EXPECT_TRUE(
      says(diagnosis, "meeting", "failure", {"does not answer as symm does"}, {"as every rank"}));
  EXPECT_TRUE(says(diagnosis, "meeting place", "warning", {"another program", "says nothing"},
                   {"MASTER_PORT"}));
  EXPECT_LT(diagnosis.seconds, 30 * kSlowdown);
}

TEST(DoctorJob, MpirunItselfStartsIt) {
  if (shell("command -v mpirun") != 0) GTEST_SKIP() << "mpirun is not installed";
  const Ended ended =
      Program({"mpirun", "--oversubscribe", "--bind-to", "none", "-n", "3", doctor()},
              plain_environment({"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"}))
          .finish(100);
  EXPECT_EQ(ended.status, 0) << ended.output;
  for (const char* title :
       {"symm-doctor, rank 0 of 3", "symm-doctor, rank 1 of 3", "symm-doctor, rank 2 of 3"}) {
    const size_t begin = ended.output.find(title);
    ASSERT_NE(begin, std::string::npos) << ended.output;
    // Each report comes out in one piece.
    const std::string report =
        ended.output.substr(begin, ended.output.find("symm works here", begin) - begin);
    EXPECT_TRUE(mentions_all(report, {"as Open MPI says", "all 3 ranks met", "two processes"}));
    EXPECT_EQ(report.find("symm-doctor, rank", 1), std::string::npos) << ended.output;
  }
}

class DoctorHosts : public testing::Test {
 protected:
  void SetUp() override {
    if (!hosts.lacking.empty()) GTEST_SKIP() << hosts.lacking;
  }
  Program start_on(const std::string& host, const Variables& variables) {
    return start(variables, {"ip", "netns", "exec", host});
  }
  Variables rank_of_three(int rank) const {
    Variables variables = but(job_of_two(rank, 29500), "MASTER_ADDR=" + hosts.left_address);
    return but(variables, "WORLD_SIZE=3");
  }

  const TwoHosts hosts;
};

TEST_F(DoctorHosts, TheRanksOfTwoAreCompared) {
  Variables different = rank_of_three(2);
  different.insert(different.end(), {preloaded("other_symm"), "SYMM_TEST_VERSION=2003"});
  Program second = start_on(hosts.left, rank_of_three(1));
  Program third = start_on(hosts.right, different);
  const Diagnosis on_left = read_diagnosis(start_on(hosts.left, rank_of_three(0)).finish());
  const Diagnosis on_right = read_diagnosis(third.finish());
  read_diagnosis(second.finish());
  EXPECT_TRUE(says(on_left, "meeting", "ok", {"all 3 ranks met"}));
  EXPECT_TRUE(says(on_left, "hosts", "warning", {"2 of the 3 ranks"}, {"split"}));
  EXPECT_TRUE(says(on_left, "symm of all ranks", "ok", {"every rank of this host has"}));
  EXPECT_TRUE(says(on_left, "other hosts", "warning", {"symm", "another on 1 of 3 ranks"},
                   {"other hosts"}));
  EXPECT_TRUE(says(on_right, "hosts", "warning", {"1 of the 3 ranks"}, {"split"}));
  EXPECT_TRUE(says(on_right, "other hosts", "warning", {"symm (0.2.3 here)", "2 of 3 ranks"},
                   {"other hosts"}));
}

TEST_F(DoctorHosts, AnAddressOfAnotherIsNotRank0s) {
  const Variables variables = but(rank_of_three(0), "MASTER_ADDR=" + hosts.right_address);
  const Diagnosis diagnosis = read_diagnosis(start_on(hosts.left, variables).finish());
  EXPECT_TRUE(says(diagnosis, "meeting place", "warning",
                   {"rank 0 (this process) cannot serve", "no address of this host"},
                   {"MASTER_ADDR"}));
  EXPECT_TRUE(says(diagnosis, "meeting", "failure", {hosts.right_address}, {"every rank"}));
}

TEST_F(DoctorHosts, OneThatCannotBeReachedIsNamed) {
  ASSERT_EQ(shell(hosts.cut), 0);
  const Diagnosis diagnosis = read_diagnosis(
      Program({"ip", "netns", "exec", hosts.right, doctor(), "--json", "--no-trials"},
              plain_environment(rank_of_three(1)))
          .finish());
  EXPECT_TRUE(says(diagnosis, "meeting place", "warning", {hosts.left_address, "cannot be reached"},
                   {"MASTER_ADDR", "firewall"}));
}

}  // namespace
}  // namespace symm_test
