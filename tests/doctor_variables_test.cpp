// What symm-doctor says of launchers' variables, beside what the library says of the same ones.
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "capi/symm.h"
#include "tests/support/calls.h"
#include "tests/support/diagnosis.h"
#include "tests/support/places.h"

extern char** environ;

namespace symm_test {
namespace {

// ---- Variables of launchers ----

// The whole environment is `variables` while it lives.
class OnlyVariables {
 public:
  explicit OnlyVariables(Variables variables) : variables_(std::move(variables)) {
    for (std::string& variable : variables_) pointers_.push_back(variable.data());
    pointers_.push_back(nullptr);
    environ = pointers_.data();
  }
  ~OnlyVariables() { environ = before_; }
  OnlyVariables(const OnlyVariables&) = delete;
  OnlyVariables& operator=(const OnlyVariables&) = delete;

 private:
  Variables variables_;
  std::vector<char*> pointers_;
  char** before_ = environ;
};

// What is said of one wrong variable, by the doctor and by the library alike.
void expect_blamed(const Variables& variables, const std::string& variable,
                   const std::string& check, const std::string& remedy) {
  std::string all;
  for (const std::string& one : variables) all += " " + one;
  SCOPED_TRACE("with" + all);
  const Diagnosis diagnosis = diagnose(variables, {"--no-trials"});
  EXPECT_TRUE(says(diagnosis, check, "warning", {variable}, {remedy}));
  EXPECT_EQ(diagnosis.json["rank"].kind, Json::Kind::kNull);
  const OnlyVariables only(variables);
  symm_comm* comm = nullptr;
  const symm_comm_options options = comm_options(nullptr, 1000);
  EXPECT_TRUE(fails(
      SYMM_INVALID_ARGUMENT,
      symm_comm_create("env://", SYMM_FROM_ADDRESS, SYMM_FROM_ADDRESS, SYMM_CPU, &options, &comm),
      {variable}));
  symm_comm_free(comm);
}

struct Launcher {
  const char* name;
  Variables variables;  // of rank 1 of 2
  std::string rank, size, local_rank, local_size;
};

std::vector<Launcher> launchers() {
  return {
      {"torchrun",
       {"RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500"},
       "RANK",
       "WORLD_SIZE",
       "LOCAL_RANK",
       ""},
      {"Open MPI",
       {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=1",
        "OMPI_COMM_WORLD_LOCAL_SIZE=2", "PMIX_NAMESPACE=77"},
       "OMPI_COMM_WORLD_RANK",
       "OMPI_COMM_WORLD_SIZE",
       "OMPI_COMM_WORLD_LOCAL_RANK",
       "OMPI_COMM_WORLD_LOCAL_SIZE"},
      {"PMI",
       {"PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2", "PMI_JOBID=77"},
       "PMI_RANK",
       "PMI_SIZE",
       "MPI_LOCALRANKID",
       "MPI_LOCALNRANKS"},
      {"PMI",
       {"PMI_RANK=1", "PMI_SIZE=2", "PMI_LOCAL_RANK=1", "PMI_LOCAL_SIZE=2", "PMI_JOBID=77"},
       "PMI_RANK",
       "PMI_SIZE",
       "PMI_LOCAL_RANK",
       "PMI_LOCAL_SIZE"},
      {"Slurm",
       {"SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2", "SLURM_LOCALID=1", "SLURM_STEP_NUM_NODES=1",
        "SLURM_JOB_ID=77", "SLURM_STEP_ID=0"},
       "SLURM_PROCID",
       "SLURM_STEP_NUM_TASKS",
       "SLURM_LOCALID",
       "SLURM_STEP_NUM_NODES"},
  };
}

TEST(DoctorVariables, OfEachLauncherAreUnderstood) {
  for (const Launcher& launcher : launchers()) {
    const Diagnosis diagnosis = diagnose(launcher.variables, {"--no-trials"});
    EXPECT_TRUE(says(diagnosis, "rank and size", "ok", {"rank 1 of 2", launcher.name}));
    EXPECT_TRUE(says(diagnosis, "local rank", "ok", {launcher.local_rank}));
    EXPECT_EQ(diagnosis.json["rank"].number, 1);
    EXPECT_EQ(diagnosis.json["size"].number, 2);
    EXPECT_FALSE(diagnosis.has("meeting")) << "--no-trials met somebody";
  }
}

TEST(DoctorVariables, EachThatIsMissingOrMalformedIsNamedAsTheLibraryNamesIt) {
  for (const Launcher& launcher : launchers()) {
    const auto expect = [&](const std::string& variable, const char* check,
                            const Variables& values) {
      for (const std::string& value : values) {
        expect_blamed(but(launcher.variables, variable + "=" + value), variable, check, variable);
      }
    };
    expect_blamed(but(launcher.variables, launcher.rank), launcher.rank, "rank and size",
                  launcher.rank);
    // Of Slurm the job's number of tasks would count; there is none either.
    if (launcher.name != std::string("Slurm")) {
      expect_blamed(but(launcher.variables, launcher.size), launcher.size, "rank and size",
                    launcher.size);
    }
    expect(launcher.rank, "rank and size", {"", "zero", "1x", " 1", "+1", "-1", "2", "9999999999"});
    expect(launcher.size, "rank and size", {"", "two", "2.0", "-2", "0", "99999999999999999999"});
    expect(launcher.local_rank, "local rank", {"", "first", "-1", "2"});
    if (launcher.local_size.empty()) continue;
    expect(launcher.local_size, "local size", {"", "all", "-1", "0"});
    // Also where an address is set, with which it need not be known.
    Variables with_address = launcher.variables;
    with_address.insert(with_address.end(), {"MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500"});
    expect_blamed(but(with_address, launcher.local_size + "=x"), launcher.local_size, "local size",
                  launcher.local_size);
  }
}

TEST(DoctorVariables, AnAddressThatIsMissingOrMalformedIsNamed) {
  const Variables good = job_of_two(0, 29500);
  for (const char* change : {"MASTER_ADDR", "MASTER_ADDR="}) {
    expect_blamed(but(good, change), "MASTER_ADDR", "meeting place", "MASTER_ADDR");
  }
  for (const char* change : {"MASTER_PORT", "MASTER_PORT=", "MASTER_PORT=http", "MASTER_PORT=0",
                             "MASTER_PORT=65536", "MASTER_PORT=-1"}) {
    expect_blamed(but(good, change), "MASTER_PORT", "meeting place", "MASTER_PORT");
  }
  expect_blamed(but(but(good, "MASTER_PORT"), "MASTER_ADDR"), "MASTER_ADDR", "meeting place",
                "MASTER_ADDR");
}

TEST(DoctorVariables, RanksThatMayBeOnSeveralHostsNeedAnAddress) {
  for (const Launcher& launcher : launchers()) {
    if (launcher.local_size.empty()) continue;
    const bool slurm = launcher.name == std::string("Slurm");
    expect_blamed(but(launcher.variables, launcher.local_size + (slurm ? "=2" : "=1")),
                  launcher.local_size, "meeting place", "MASTER_ADDR");
    expect_blamed(but(launcher.variables, launcher.local_size), "MASTER_ADDR", "meeting place",
                  "MASTER_PORT");
  }
}

TEST(DoctorVariables, AJobWithoutAnIdNeedsAToken) {
  for (const auto& [launcher, job] : {std::pair{1, "PMIX_NAMESPACE"}, std::pair{2, "PMI_JOBID"}}) {
    const Variables variables = but(launchers()[static_cast<size_t>(launcher)].variables, job);
    expect_blamed(variables, "job id", "meeting place", "SYMM_TOKEN");
    Variables with_token = variables;
    with_token.push_back("SYMM_TOKEN=ours");
    EXPECT_TRUE(says(diagnose(with_token, {"--no-trials"}), "meeting place", "ok", {"socket"}));
  }
  Variables long_token = job_of_two(0, 29500);
  long_token.push_back("SYMM_TOKEN=" + std::string(257, 't'));
  expect_blamed(long_token, "SYMM_TOKEN", "token", "shorter");
}

TEST(DoctorVariables, AScriptOfSlurmsIsNoTask) {
  expect_blamed(
      {"SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_LOCALID=0", "SLURM_NNODES=1", "SLURM_JOB_ID=7"},
      "SLURM_STEP_ID", "rank and size", "srun");
}

TEST(DoctorVariables, PmisOfASlurmStepAreSlurms) {
  Variables variables = launchers().back().variables;
  variables.insert(variables.end(), {"PMI_RANK=1", "PMI_SIZE=2"});
  EXPECT_TRUE(
      says(diagnose(variables, {"--no-trials"}), "rank and size", "ok", {"rank 1 of 2", "Slurm"}));
}

TEST(DoctorVariables, OnlyTrueMeansAnAgentsStore) {
  Variables variables = job_of_two(0, free_port());
  variables.push_back("TORCHELASTIC_USE_AGENT_STORE=1");
  EXPECT_TRUE(says(diagnose(variables, {"--no-trials"}), "agent's store", "warning",
                   {"TORCHELASTIC_USE_AGENT_STORE is '1'"}, {"True"}));
}

}  // namespace
}  // namespace symm_test
