// env://: what launchers set, and what is said when they set it badly.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "capi/symm.h"
#include "tests/support/calls.h"
#include "tests/support/places.h"

namespace symm_test {
namespace {

using Variables = std::vector<std::string>;

// Everything any launcher sets: a test must not see the variables of the one it runs under.
const Variables kNothing = {"RANK",
                            "WORLD_SIZE",
                            "LOCAL_RANK",
                            "MASTER_ADDR",
                            "MASTER_PORT",
                            "TORCHELASTIC_USE_AGENT_STORE",
                            "TORCHELASTIC_RUN_ID",
                            "OMPI_COMM_WORLD_RANK",
                            "OMPI_COMM_WORLD_SIZE",
                            "OMPI_COMM_WORLD_LOCAL_RANK",
                            "OMPI_COMM_WORLD_LOCAL_SIZE",
                            "OMPI_MCA_ess_base_jobid",
                            "OMPI_MCA_orte_ess_jobid",
                            "PMIX_NAMESPACE",
                            "PMIX_RANK",
                            "PMI_RANK",
                            "PMI_SIZE",
                            "PMI_LOCAL_RANK",
                            "PMI_LOCAL_SIZE",
                            "MPI_LOCALRANKID",
                            "MPI_LOCALNRANKS",
                            "PMI_JOBID",
                            "SLURM_PROCID",
                            "SLURM_NTASKS",
                            "SLURM_NPROCS",
                            "SLURM_LOCALID",
                            "SLURM_JOB_ID",
                            "SLURM_JOBID",
                            "SLURM_STEP_ID",
                            "SLURM_STEPID",
                            "SLURM_NNODES",
                            "SLURM_JOB_NUM_NODES",
                            "SLURM_STEP_NUM_NODES",
                            "SLURM_STEP_NUM_TASKS",
                            "SYMM_TOKEN"};

Variables with(Variables chosen) {
  for (const std::string& name : kNothing) {
    bool set = false;
    for (const std::string& one : chosen) set = set || one.substr(0, one.find('=')) == name;
    if (!set) chosen.push_back(name);
  }
  return chosen;
}

// The test itself is rank 0 or so of nothing: ranks learn theirs from the variables alone.
void meets_by_variables(Rank& rank) {
  symm_comm* comm = nullptr;
  const symm_comm_options options = comm_options("by variables", 20000, 20000);
  ASSERT_TRUE(ok(
      symm_comm_create("env://", SYMM_FROM_ADDRESS, SYMM_FROM_ADDRESS, SYMM_CPU, &options, &comm)));
  const Comm owner(comm);
  rank.give(std::to_string(rank_of(comm)) + " of " + std::to_string(size_of(comm)));
  EXPECT_TRUE(adds_up(comm));
  EXPECT_TRUE(ok(symm_comm_barrier(comm, nullptr)));
}

void expect_met(int size, const std::function<Variables(int process)>& environment) {
  RunOptions options;
  options.environment = [&](int process) { return with(environment(process)); };
  const auto given = run(processes(size), meets_by_variables, options);
  for (int rank = 0; rank < size; ++rank) {
    ASSERT_EQ(given[static_cast<size_t>(rank)].size(), 1u);
    EXPECT_EQ(given[static_cast<size_t>(rank)][0],
              std::to_string(rank) + " of " + std::to_string(size));
  }
}

std::string number(const char* name, int value) {
  return std::string(name) + "=" + std::to_string(value);
}

TEST(Launchers, TorchrunsVariablesAreUnderstood) {
  const std::string port = "MASTER_PORT=" + std::to_string(free_port());
  expect_met(3, [&](int process) {
    return Variables{number("RANK", process), "WORLD_SIZE=3", number("LOCAL_RANK", process),
                     "MASTER_ADDR=127.0.0.1", port};
  });
}

TEST(Launchers, AWorldOfOneNeedsOnlyItsVariables) {
  const std::string port = "MASTER_PORT=" + std::to_string(free_port());
  expect_met(1, [&](int) {
    return Variables{"RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=localhost", port};
  });
}

TEST(Launchers, OpenMpisVariablesNeedNoAddressOnOneHost) {
  const std::string job = "PMIX_NAMESPACE=" + std::to_string(getpid()) + "001";
  const std::string id = "OMPI_MCA_ess_base_jobid=" + std::to_string(getpid()) + "001";
  expect_met(4, [&](int process) {
    return Variables{number("OMPI_COMM_WORLD_RANK", process),
                     "OMPI_COMM_WORLD_SIZE=4",
                     number("OMPI_COMM_WORLD_LOCAL_RANK", process),
                     "OMPI_COMM_WORLD_LOCAL_SIZE=4",
                     job,
                     id};
  });
}

TEST(Launchers, OpenMpisVariablesTakeAnAddressThatIsSet) {
  const std::string port = "MASTER_PORT=" + std::to_string(free_port());
  expect_met(2, [&](int process) {
    return Variables{number("OMPI_COMM_WORLD_RANK", process),
                     "OMPI_COMM_WORLD_SIZE=2",
                     number("OMPI_COMM_WORLD_LOCAL_RANK", process),
                     "OMPI_COMM_WORLD_LOCAL_SIZE=2",
                     "MASTER_ADDR=127.0.0.1",
                     port};
  });
}

TEST(Launchers, PmisVariablesAreUnderstood) {
  const std::string port = "MASTER_PORT=" + std::to_string(free_port());
  expect_met(3, [&](int process) {
    return Variables{number("PMI_RANK", process), "PMI_SIZE=3", number("MPI_LOCALRANKID", process),
                     "MASTER_ADDR=127.0.0.1", port};
  });
}

TEST(Launchers, SlurmsVariablesAreUnderstood) {
  const std::string port = "MASTER_PORT=" + std::to_string(free_port());
  expect_met(3, [&](int process) {
    return Variables{number("SLURM_PROCID", process),
                     "SLURM_NTASKS=3",
                     number("SLURM_LOCALID", process),
                     number("SLURM_JOB_ID", getpid()),
                     "SLURM_STEP_ID=0",
                     "SLURM_NNODES=1",
                     "SLURM_JOB_NUM_NODES=1",
                     "SLURM_STEP_NUM_NODES=1",
                     "MASTER_ADDR=127.0.0.1",
                     port};
  });
}

TEST(Launchers, RankAndWorldSizeComeBeforeWhatOtherLaunchersSay) {
  const std::string port = "MASTER_PORT=" + std::to_string(free_port());
  expect_met(2, [&](int process) {
    return Variables{number("RANK", process),  "WORLD_SIZE=2",
                     "MASTER_ADDR=127.0.0.1",  port,
                     "OMPI_COMM_WORLD_RANK=7", "OMPI_COMM_WORLD_SIZE=9",
                     "SLURM_PROCID=5",         "SLURM_NTASKS=11"};
  });
}

TEST(Launchers, MpirunItselfStartsRanks) {
  if (system("command -v mpirun >/dev/null 2>&1") != 0) GTEST_SKIP() << "mpirun is not installed";
  for (int size : {2, 5}) {
    const std::string command =
        "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 100 mpirun "
        "--oversubscribe"
        " --bind-to none -n " +
        std::to_string(size) + " " + command_line(meets_by_variables, 0, size, "env://", "") +
        " 2>&1";
    FILE* output = popen(command.c_str(), "r");
    ASSERT_NE(output, nullptr);
    std::string text;
    for (int c = fgetc(output); c != EOF; c = fgetc(output)) text += static_cast<char>(c);
    EXPECT_EQ(pclose(output), 0) << text;
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_TRUE(
          mentions_all(text, {"G " + std::to_string(rank) + " of " + std::to_string(size)}));
    }
  }
}

struct BadVariables {
  Variables variables;
  symm_status status;
  std::vector<std::string> mentions;
};

TEST(Launchers, WhatIsMissingOrMalformedIsNamedWithItsValue) {
  const auto bad = SYMM_INVALID_ARGUMENT;
  const std::vector<BadVariables> cases = {
      {{}, bad, {"env://", "RANK", "WORLD_SIZE"}},
      {{"RANK=0"}, bad, {"WORLD_SIZE"}},
      {{"WORLD_SIZE=2"}, bad, {"RANK"}},
      {{"RANK=0", "WORLD_SIZE=2"}, bad, {"MASTER_ADDR"}},
      {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1"}, bad, {"MASTER_PORT"}},
      {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=http"},
       bad,
       {"MASTER_PORT", "http"}},
      {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=0"},
       bad,
       {"MASTER_PORT", "0"}},
      {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=99999"},
       bad,
       {"MASTER_PORT", "99999"}},
      {{"RANK=zero", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=1234"},
       bad,
       {"RANK", "zero"}},
      {{"RANK=1x", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=1234"},
       bad,
       {"RANK", "1x"}},
      {{"RANK=-1", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=1234"},
       bad,
       {"RANK", "-1"}},
      {{"RANK=2", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=1234"}, bad, {"RANK", "2"}},
      {{"RANK=0", "WORLD_SIZE=0", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=1234"},
       bad,
       {"WORLD_SIZE", "0"}},
      {{"RANK=0", "WORLD_SIZE=99999999999", "MASTER_ADDR=h", "MASTER_PORT=1234"},
       bad,
       {"WORLD_SIZE"}},
      {{"OMPI_COMM_WORLD_RANK=0"}, bad, {"OMPI_COMM_WORLD_SIZE"}},
      {{"RANK=0", "WORLD_SIZE=2", "TORCHELASTIC_USE_AGENT_STORE=True"},
       bad,
       {"MASTER_ADDR and MASTER_PORT"}},
  };
  for (const BadVariables& c : cases) {
    RunOptions options;
    options.environment = [&](int) { return with(c.variables); };
    const auto given = run(
        processes(1),
        [](Rank& rank) {
          symm_comm* comm = nullptr;
          const symm_comm_options chosen = comm_options(nullptr, 3000);
          const symm_status status = symm_comm_create("env://", SYMM_FROM_ADDRESS,
                                                      SYMM_FROM_ADDRESS, SYMM_CPU, &chosen, &comm);
          EXPECT_EQ(comm, nullptr);
          rank.give(symm_status_name(status));
          rank.give(symm_last_error());
        },
        options);
    std::string set;
    for (const std::string& variable : c.variables) set += " " + variable;
    EXPECT_EQ(given[0][0], symm_status_name(c.status)) << "with" << set << ": " << given[0][1];
    for (const std::string& mention : c.mentions) {
      EXPECT_TRUE(mentions_all(given[0][1], {"symm_comm_create", mention})) << "with" << set;
    }
  }
}

TEST(Launchers, RankAndSizeThatAreGivenComeBeforeTheVariables) {
  RunOptions options;
  options.environment = [&](int) {
    return with(
        {"RANK=7", "WORLD_SIZE=9", "MASTER_ADDR=127.0.0.1", number("MASTER_PORT", free_port())});
  };
  run(
      processes(1),
      [](Rank&) {
        symm_comm* comm = nullptr;
        EXPECT_TRUE(ok(symm_comm_create("env://", 0, 1, SYMM_CPU, nullptr, &comm)));
        EXPECT_EQ(size_of(comm), 1);
        symm_comm_free(comm);
        EXPECT_TRUE(
            fails(SYMM_INVALID_ARGUMENT,
                  symm_comm_create("env://", SYMM_FROM_ADDRESS, 1, SYMM_CPU, nullptr, &comm),
                  {"rank 7", "size 1"}));
      },
      options);
}

}  // namespace
}  // namespace symm_test
