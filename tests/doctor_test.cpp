// symm-doctor as a program, where each thing that users run into is made real: limits, drivers, and
// what listens where the ranks are to meet. What it makes of machines that are not here is in
// unit/doctor_test.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "capi/symm.h"
#include "tests/support/calls.h"
#include "tests/support/diagnosis.h"
#include "tests/support/places.h"
#include "tests/support/stranger.h"

namespace symm_test {
namespace {

// ---- The program itself ----

TEST(Doctor, SaysTheSameAsTextAndAsJson) {
  const Variables variables = {"RANK=7", "WORLD_SIZE=2"};  // one warning at least
  const Diagnosis diagnosis = diagnose(variables, {"--no-trials"});
  const Ended text = Program({doctor(), "--no-trials"}, plain_environment(variables)).finish();
  EXPECT_EQ(text.status, 0);
  for (const Finding& finding : diagnosis.findings) {
    if (finding.name == "memory" || finding.name == "memory limit") continue;  // it changes
    EXPECT_TRUE(mentions_all(text.output, {finding.section, finding.name, finding.detail}));
    if (!finding.remedy.empty()) {
      EXPECT_TRUE(mentions_all(text.output, {"-> " + finding.remedy}));
    }
  }
  EXPECT_EQ(diagnosis.json["schema"].number, 1);
  EXPECT_TRUE(diagnosis.json["report"].has("library"));
  EXPECT_TRUE(diagnosis.json["report"].has("machine"));
}

TEST(Doctor, EndsWithStatus0WhereAllWorksAnd2ForWrongArguments) {
  const Diagnosis diagnosis = diagnose({});
  EXPECT_EQ(diagnosis.status, 0);
  EXPECT_TRUE(says(diagnosis, "two threads", "ok", {"all-reduced"}));
  EXPECT_TRUE(says(diagnosis, "two processes", "ok", {"all-reduced"}));
  EXPECT_TRUE(says(diagnosis, "rank and size", "note", {"no launcher"}, {"torchrun"}));
  EXPECT_EQ(diagnosis.json["rank"].kind, Json::Kind::kNull);
  EXPECT_FALSE(diagnosis.has("meeting"));
  const Ended wrong = Program({doctor(), "--jso"}, plain_environment({})).finish();
  EXPECT_EQ(wrong.status, 2);
  EXPECT_EQ(wrong.output, "");
}

TEST(Doctor, EndsWithStatus1WhereSymmCannotWork) {
  const Diagnosis diagnosis =
      read_diagnosis(Program({"sh", "-c", "ulimit -n 50; exec " + doctor() + " --json --no-trials"},
                             plain_environment({}))
                         .finish());
  EXPECT_EQ(diagnosis.status, 1);
  EXPECT_TRUE(says(diagnosis, "open files", "failure", {"at most 50"}, {"ulimit"}));
}

TEST(Doctor, TrialsFindAWrongSum) {
  const Diagnosis diagnosis = diagnose({preloaded("other_symm"), "SYMM_TEST_ALL_REDUCE=nothing"});
  for (const char* trial : {"two threads", "two processes"}) {
    EXPECT_TRUE(says(diagnosis, trial, "failure", {"of the sum is", "not 3"}, {"failed above"}));
  }
  EXPECT_EQ(diagnosis.status, 1);
}

TEST(Doctor, TrialsThatEndByASignalAreTold) {
  const Diagnosis diagnosis = diagnose({preloaded("other_symm"), "SYMM_TEST_ALL_REDUCE=dies"});
  EXPECT_TRUE(says(diagnosis, "two threads", "failure", {"ended by signal 9"}, {"failed above"}));
  EXPECT_EQ(diagnosis.find("two processes").status, "failure");
  EXPECT_EQ(diagnosis.status, 1);
}

TEST(Doctor, ItsReportIsOneWrite) {
  // Of such a socket each write is a message; those of many ranks would mix in a pipe.
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const timeval limit = {60, 0};
  setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  Variables variables;
  for (const char* name : {"RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                           "PMI_RANK", "PMI_SIZE", "SLURM_PROCID", "SLURM_NTASKS"}) {
    variables.push_back(std::string(name) + "=" + std::string(64, 'x'));
  }
  Program program({doctor(), "--json"}, plain_environment(variables), ends[1]);
  std::string report(1 << 18, '\0');
  const ssize_t size = recv(ends[0], report.data(), report.size(), 0);
  ASSERT_GT(size, 4096) << "shorter than what is written at once anyway";
  report.resize(static_cast<size_t>(size));
  EXPECT_EQ(program.finish().status, 0);
  EXPECT_NO_THROW(parse_json(report)) << report;
  EXPECT_EQ(recv(ends[0], report.data(), report.size(), MSG_DONTWAIT), -1) << report;
  close(ends[0]);
  close(ends[1]);
}

TEST(Doctor, ControlCharactersOfVariablesReachNoTerminal) {
  const Ended text =
      Program({doctor(), "--no-trials"}, plain_environment({"RANK=\033[31m\n0", "WORLD_SIZE=2"}))
          .finish();
  EXPECT_EQ(text.output.find('\033'), std::string::npos);
  EXPECT_TRUE(mentions_all(text.output, {"RANK is '?[31m?0', which is not a number"}));
}

// ---- Who listens at MASTER_ADDR:MASTER_PORT ----

const char kAgent[] = "TORCHELASTIC_USE_AGENT_STORE=True";

Diagnosis look_at(int rank, int port, const Variables& more = {}) {
  Variables variables = job_of_two(rank, port);
  for (const std::string& one : more) variables = but(variables, one);
  return diagnose(variables, {"--no-trials"});
}

TEST(DoctorPlace, AFreePortIsRank0sToServe) {
  const int port = free_port();
  EXPECT_TRUE(says(look_at(0, port), "meeting place", "ok", {"is free", std::to_string(port)}));
  EXPECT_TRUE(says(look_at(1, port), "meeting place", "note", {"nobody listens", "refused"},
                   {"rank 0 listens there"}));
  EXPECT_TRUE(says(look_at(0, port, {kAgent}), "meeting place", "warning",
                   {"TORCHELASTIC_USE_AGENT_STORE", "no store can be reached", "refused"},
                   {"torchrun", "unset TORCHELASTIC_USE_AGENT_STORE"}));
}

TEST(DoctorPlace, ANumberOfIPv6MayBeInBrackets) {
  const Diagnosis diagnosis = look_at(0, free_port(), {"MASTER_ADDR=[::1]"});
  if (diagnosis.find("meeting place").detail.find("Cannot assign") != std::string::npos) {
    GTEST_SKIP() << "there is no IPv6 on this machine";
  }
  EXPECT_TRUE(says(diagnosis, "meeting place", "ok", {"[::1]:"}));
}

TEST(DoctorPlace, WhatSaysNothingIsNoStore) {
  const Stranger mute("", false);
  const Diagnosis diagnosis = look_at(0, mute.port);
  EXPECT_TRUE(says(diagnosis, "meeting place", "warning", {"another program", "says nothing"},
                   {"MASTER_PORT"}));
  EXPECT_LT(diagnosis.seconds, 10 * kSlowdown);
  EXPECT_TRUE(says(look_at(1, mute.port, {kAgent}), "meeting place", "warning",
                   {"there is no store", "says nothing"}, {"torchrun"}));
}

TEST(DoctorPlace, WhatSaysOtherThingsIsNoStore) {
  const Stranger other("SSH-2.0-OpenSSH_9.2\r\n", false);
  EXPECT_TRUE(says(look_at(0, other.port), "meeting place", "warning",
                   {"another program", "as no PyTorch store does"}, {"MASTER_PORT"}));
  EXPECT_TRUE(says(look_at(1, other.port, {kAgent}), "meeting place", "warning",
                   {"there is no store", "as no PyTorch store does"}, {"torchrun"}));
}

TEST(DoctorPlace, WhatHangsUpIsNoStoreAndToOthersThanRank0MayBeRank0) {
  const Stranger other("", true);
  EXPECT_TRUE(says(look_at(0, other.port), "meeting place", "warning",
                   {"another program", "hangs up"}, {"MASTER_PORT"}));
  EXPECT_TRUE(says(look_at(1, other.port), "meeting place", "note", {"hangs up", "rank 0"},
                   {"choose another"}));
  EXPECT_TRUE(says(look_at(1, other.port, {kAgent}), "meeting place", "warning",
                   {"there is no store", "hangs up"}, {"torchrun"}));
}

TEST(DoctorPlace, AHostThatDoesNotAnswerIsNamedWithinABound) {
  // Connections beyond the backlog get no answer.
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  socklen_t size = sizeof address;
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(listener, 0), 0);
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  std::vector<int> fillers;
  for (bool full = false; !full && fillers.size() < 64;) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    (void)connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address);
    pollfd one{fd, POLLOUT, 0};
    full = poll(&one, 1, 300) == 0;
    fillers.push_back(fd);
  }
  for (const Variables& more : {Variables{}, Variables{kAgent}}) {
    const Diagnosis diagnosis = look_at(1, ntohs(address.sin_port), more);
    EXPECT_TRUE(
        says(diagnosis, "meeting place", "warning", {"reached", "timed out"}, {"MASTER_ADDR"}));
    EXPECT_LT(diagnosis.seconds, 10 * kSlowdown);
  }
  for (const int fd : fillers) close(fd);
  close(listener);
}

TEST(DoctorPlace, ANameThatNobodyKnowsIsNamed) {
  const Diagnosis diagnosis = look_at(1, 29500, {"MASTER_ADDR=no-such-host.invalid"});
  EXPECT_TRUE(says(diagnosis, "meeting place", "warning", {"no-such-host.invalid is not known"},
                   {"name or number"}));
  EXPECT_LT(diagnosis.seconds, 15 * kSlowdown);
}

TEST(DoctorPlace, AResolverThatDoesNotAnswerIsNamedWithinABound) {
  Variables variables = but(job_of_two(1, 29500), "MASTER_ADDR=somewhere");
  variables.push_back(preloaded("mute_resolver"));
  const Diagnosis diagnosis = diagnose(variables, {"--no-trials"});
  EXPECT_TRUE(says(diagnosis, "meeting place", "warning",
                   {"somewhere", "the resolver does not answer"}, {"/etc/hosts"}));
  EXPECT_LT(diagnosis.seconds, 20 * kSlowdown);
}

// ---- Drivers ----

// Of a libsymm with GPU support, with a driver of the tests' own.
Diagnosis with_driver(const std::string& name, Variables variables) {
  variables.push_back(with_double(name));
  return diagnose(variables, {"--no-trials"});
}

class DoctorDriver : public testing::Test {
 protected:
  void SetUp() override {
    if (diagnose({}, {"--no-trials"}).find("CUDA").detail.find("build of symm has no support") !=
        std::string::npos) {
      GTEST_SKIP() << "this build of symm has no GPU support";
    }
  }
};

TEST_F(DoctorDriver, OneThatIsTooOldIsNamedWithBothVersions) {
  EXPECT_TRUE(says(with_driver("partial_driver", {"SYMM_TEST_DRIVER_VERSION=12040"}), "CUDA",
                   "warning", {"12.4", "13.0"}, {"newer NVIDIA driver"}));
}

TEST_F(DoctorDriver, OneThatLacksFunctionsIsNamed) {
  EXPECT_TRUE(says(with_driver("partial_driver", {"SYMM_TEST_DRIVER_VERSION=13000"}), "CUDA",
                   "warning", {"libcuda.so.1 has no cu"}, {"newer NVIDIA driver"}));
}

TEST_F(DoctorDriver, VisibleDevicesThatLeaveNoneAreNamed) {
  for (const std::string value : {"", "-1", "9"}) {
    EXPECT_TRUE(says(with_driver("blind_driver", {"CUDA_VISIBLE_DEVICES=" + value}), "CUDA",
                     "warning", {"CUDA_ERROR_NO_DEVICE", "CUDA_VISIBLE_DEVICES is '" + value + "'"},
                     {"unset CUDA_VISIBLE_DEVICES"}));
  }
}

// ---- NCCL ----

Diagnosis with_nccl(const std::string& name, Variables variables) {
  variables.push_back(with_double(name));
  return diagnose(variables, {"--no-trials"});
}

// Without GPUs nobody misses it; with some it is a warning.
testing::AssertionResult says_where_gpus_are(const Diagnosis& diagnosis, const std::string& name,
                                             std::initializer_list<std::string> details,
                                             std::initializer_list<std::string> remedies) {
  const bool has_gpus = diagnosis.find("CUDA").status == "ok";
  return says(diagnosis, name, has_gpus ? "warning" : "note", details, remedies);
}

TEST(DoctorNccl, NotHavingItIsANoteThatSaysWhatItCosts) {
  const Diagnosis diagnosis = diagnose({}, {"--no-trials"});
  if (diagnosis.find("NCCL").status == "ok") GTEST_SKIP() << "this machine has NCCL";
  EXPECT_TRUE(says(diagnosis, "NCCL", "note", {"not found", "several hosts"},
                   {"nvidia-nccl-cu13", "nccl_path"}));
}

TEST(DoctorNccl, AWholeOneIsNamedWithItsVersionAndPath) {
  const Diagnosis diagnosis = with_nccl("whole_nccl", {"SYMM_TEST_NCCL_VERSION=22809"});
  EXPECT_TRUE(says(diagnosis, "NCCL", "ok", {"2.28.9", "whole_nccl/libnccl.so.2"}));
  EXPECT_TRUE(says(diagnosis, "NCCL windows", "ok", {"available"}));
}

TEST(DoctorNccl, OneThatIsOfNoUseIsNamed) {
  EXPECT_TRUE(says_where_gpus_are(with_nccl("whole_nccl", {"SYMM_TEST_NCCL_VERSION=2803"}), "NCCL",
                                  {"whole_nccl/libnccl.so.2", "2.8.3"}, {"update"}));
  EXPECT_TRUE(says_where_gpus_are(with_nccl("partial_nccl", {"SYMM_TEST_NCCL_VERSION=22809"}),
                                  "NCCL", {"partial_nccl/libnccl.so.2", "has no nccl"},
                                  {"no whole NCCL"}));
  EXPECT_TRUE(says_where_gpus_are(with_nccl("partial_nccl", {}), "NCCL",
                                  {"partial_nccl/libnccl.so.2", "is no NCCL"}, {"something else"}));
}

TEST(DoctorNccl, OneThatIsTooOldForWindowsIsNamed) {
  const Diagnosis diagnosis = with_nccl("whole_nccl", {"SYMM_TEST_NCCL_VERSION=22605"});
  EXPECT_TRUE(says(diagnosis, "NCCL", "ok", {"2.26.5"}));
  EXPECT_TRUE(says_where_gpus_are(diagnosis, "NCCL windows", {"2.26.5"}, {"update NCCL to 2.27"}));
}

TEST(DoctorNccl, TheSwitchThatTurnsWindowsOffIsNamed) {
  for (const std::string name : {"NCCL_WIN_ENABLE", "NCCL_CUMEM_ENABLE"}) {
    const Diagnosis diagnosis =
        with_nccl("whole_nccl", {"SYMM_TEST_NCCL_VERSION=22809", name + "=0"});
    EXPECT_TRUE(says(diagnosis, "NCCL", "ok", {"2.28.9"}));
    EXPECT_TRUE(says_where_gpus_are(diagnosis, "NCCL windows", {name + "=0"}, {"unset " + name}));
  }
}

}  // namespace
}  // namespace symm_test
