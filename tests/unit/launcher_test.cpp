#include "core/launcher.h"

#include <gtest/gtest.h>

#include <map>

#include "core/error.h"

namespace symm {
namespace {

using Variables = std::map<std::string, std::string>;

Environment environment_of(const Variables& variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

Launcher read(const Variables& variables) { return read_launcher(environment_of(variables)); }

Variables changed(Variables variables, const Variables& changes) {
  for (const auto& [name, value] : changes) variables[name] = value;
  return variables;
}

Variables without(Variables variables, std::initializer_list<const char*> names) {
  for (const char* name : names) variables.erase(name);
  return variables;
}

void expect_refused(const Variables& variables, std::initializer_list<const char*> parts,
                    symm_status status = SYMM_INVALID_ARGUMENT) {
  try {
    read(variables);
    ADD_FAILURE() << "accepted, expected " << *parts.begin();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), status);
    const std::string message = error.what();
    EXPECT_TRUE(message.starts_with("address \"env://\"")) << message;
    for (const char* part : parts) {
      EXPECT_NE(message.find(part), std::string::npos) << message << "\nlacks " << part;
    }
  }
}

const Variables kTorchrun = {{"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"GROUP_RANK", "1"},
                             {"MASTER_ADDR", "node0"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_RESTART_COUNT", "0"},
                             {"TORCHELASTIC_RUN_ID", "run-7"},
                             {"TORCHELASTIC_USE_AGENT_STORE", "False"}};

// What mpirun of Open MPI 4.1.4 set for rank 1 of 2 on one host, as far as it could matter.
const Variables kOpenMpi = {
    {"OMPI_APP_CTX_NUM_PROCS", "2"},
    {"OMPI_COMMAND", "env"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
    {"OMPI_COMM_WORLD_NODE_RANK", "1"},
    {"OMPI_COMM_WORLD_RANK", "1"},
    {"OMPI_COMM_WORLD_SIZE", "2"},
    {"OMPI_FIRST_RANKS", "0"},
    {"OMPI_MCA_ess", "^singleton"},
    {"OMPI_MCA_ess_base_jobid", "2047016961"},
    {"OMPI_MCA_ess_base_vpid", "1"},
    {"OMPI_MCA_orte_ess_node_rank", "1"},
    {"OMPI_MCA_orte_ess_num_procs", "2"},
    {"OMPI_MCA_orte_hnp_uri", "2047016960.0;tcp://192.0.2.2:35175;tcp6://[fd00::2]:37117"},
    {"OMPI_MCA_orte_num_nodes", "1"},
    {"OMPI_MCA_orte_precondition_transports", "178d19b2ac0e81f6-ce6e56dbf55c34d2"},
    {"OMPI_NUM_APP_CTX", "1"},
    {"OMPI_UNIVERSE_SIZE", "2"},
    {"PMIX_HOSTNAME", "vm"},
    {"PMIX_ID", "2047016961.1"},
    {"PMIX_NAMESPACE", "2047016961"},
    {"PMIX_RANK", "1"},
    {"PMIX_SERVER_URI41", "2047016960.0;tcp4://127.0.0.1:54441"},
    {"PMIX_VERSION", "4.2.2rc2"}};

// What mpiexec of MPICH 4.0.2 (Hydra) set for rank 1 of 2 on one host.
const Variables kHydra = {{"GFORTRAN_UNBUFFERED_PRECONNECTED", "y"},
                          {"HYDI_CONTROL_FD", "7"},
                          {"MPIR_CVAR_CH3_INTERFACE_HOSTNAME", "vm"},
                          {"MPI_LOCALNRANKS", "2"},
                          {"MPI_LOCALRANKID", "1"},
                          {"PMI_FD", "8"},
                          {"PMI_RANK", "1"},
                          {"PMI_SIZE", "2"}};

const Variables kSrun = {{"SLURM_JOB_ID", "4711"},      {"SLURM_STEP_ID", "3"},
                         {"SLURM_PROCID", "2"},         {"SLURM_LOCALID", "2"},
                         {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_NTASKS", "16"},
                         {"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_NNODES", "4"},
                         {"SLURM_JOB_NUM_NODES", "4"},  {"SLURM_NODEID", "0"}};

const Variables kMaster = {{"MASTER_ADDR", "10.0.0.9"}, {"MASTER_PORT", "1234"}};

void expect_master(const Launcher& launcher) {
  EXPECT_EQ(launcher.address.kind, Address::Kind::kTcp);
  ASSERT_EQ(launcher.address.endpoints.size(), 1u);
  EXPECT_EQ(launcher.address.endpoints[0], (Endpoint{"", "10.0.0.9", 1234}));
}

std::string socket_of(const Variables& variables) {
  const Launcher launcher = read(variables);
  EXPECT_EQ(launcher.address.kind, Address::Kind::kUnix);
  EXPECT_EQ(launcher.address.endpoints.size(), 1u);
  const std::string name = launcher.address.endpoints.at(0).unix_name;
  EXPECT_TRUE(name.starts_with("symm-"));
  EXPECT_LE(name.size(), 107u);
  return name;
}

TEST(Torchrun, GivesRankSizeLocalRankJobAndAddress) {
  const Launcher launcher = read(kTorchrun);
  EXPECT_EQ(launcher.name, "torchrun");
  EXPECT_EQ(launcher.rank, 5);
  EXPECT_EQ(launcher.size, 8);
  EXPECT_EQ(launcher.local_rank, 1);
  EXPECT_EQ(launcher.job, "run-7");
  EXPECT_EQ(launcher.address.kind, Address::Kind::kTcp);
  EXPECT_EQ(launcher.address.endpoints.at(0), (Endpoint{"", "node0", 29500}));
  EXPECT_EQ(launcher.address.token, "run-7");
}

TEST(Torchrun, ARunIdOfNoneIsNoJob) {
  const Launcher launcher = read(changed(kTorchrun, {{"TORCHELASTIC_RUN_ID", "none"}}));
  EXPECT_EQ(launcher.name, "torchrun");
  EXPECT_EQ(launcher.job, "");
  EXPECT_EQ(launcher.address.token, "");
}

TEST(Torchrun, WithAStoreOfItsAgentMeetsThere) {
  const Launcher launcher = read(changed(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}}));
  EXPECT_EQ(launcher.address.kind, Address::Kind::kStore);
  EXPECT_EQ(launcher.address.endpoints.at(0), (Endpoint{"", "node0", 29500}));
}

// Of one job alone: ranks of all sizes and numbers share it, or could not tell each other that they
// disagree.
TEST(Torchrun, WhatItsEntriesAreNamedByTellsRunsAndTokensApart) {
  const auto scope = [](const Variables& changes) {
    return read(changed(kTorchrun, changes)).address.store_scope;
  };
  const std::string usual = scope({});
  EXPECT_EQ(scope({{"RANK", "0"}, {"WORLD_SIZE", "2"}}), usual);
  EXPECT_EQ(scope({{"TORCHELASTIC_USE_AGENT_STORE", "True"}}), usual);
  EXPECT_NE(scope({{"TORCHELASTIC_RUN_ID", "run-8"}}), usual);
  // The agents of two hosts count restarts each for itself.
  EXPECT_EQ(scope({{"TORCHELASTIC_RESTART_COUNT", "1"}}), usual);
  EXPECT_NE(scope({{"SYMM_TOKEN", "t"}}), usual);
  EXPECT_FALSE(
      read(changed({{"RANK", "0"}, {"WORLD_SIZE", "1"}}, kMaster)).address.store_scope.empty());
}

TEST(RankAndWorldSize, AreEnoughWithMasterAddrAndPort) {
  const Launcher launcher = read(changed({{"RANK", "0"}, {"WORLD_SIZE", "1"}}, kMaster));
  EXPECT_EQ(launcher.name, "RANK/WORLD_SIZE");
  EXPECT_EQ(launcher.rank, 0);
  EXPECT_EQ(launcher.size, 1);
  EXPECT_EQ(launcher.local_rank, -1);
  expect_master(launcher);
}

TEST(RankAndWorldSize, ThatAreMalformedAreNamedWithTheirValue) {
  for (const char* value : {"", "abc", "-1", "+1", " 1", "1 ", "1.0", "0x1", "99999999999"}) {
    const std::string is = "RANK is \"" + std::string(value) + "\", expected a rank from 0 to 7";
    expect_refused(changed(kTorchrun, {{"RANK", value}}), {"(torchrun)", is.c_str()});
    const std::string size = "WORLD_SIZE is \"" + std::string(value) + "\", expected a number";
    expect_refused(changed(kTorchrun, {{"WORLD_SIZE", value}}), {size.c_str()});
    const std::string local = "LOCAL_RANK is \"" + std::string(value) + "\"";
    expect_refused(changed(kTorchrun, {{"LOCAL_RANK", value}}), {local.c_str()});
  }
  expect_refused(changed(kTorchrun, {{"WORLD_SIZE", "0"}}), {"WORLD_SIZE is \"0\""});
  expect_refused(changed(kTorchrun, {{"RANK", "8"}}),
                 {"RANK is \"8\", expected a rank from 0 to 7 (WORLD_SIZE is 8)"});
  expect_refused(changed(kTorchrun, {{"LOCAL_RANK", "8"}}), {"LOCAL_RANK is \"8\""});
}

TEST(RankAndWorldSize, OneWithoutTheOtherIsRefusedAndNotPassedOver) {
  expect_refused(without(kTorchrun, {"WORLD_SIZE"}), {"RANK is \"5\", but WORLD_SIZE is not set"});
  expect_refused(without(kTorchrun, {"RANK"}), {"WORLD_SIZE is \"8\", but RANK is not set"});
  expect_refused(changed(kOpenMpi, {{"RANK", "0"}}),
                 {"RANK is \"0\", but WORLD_SIZE is not set", "unset RANK"});
}

TEST(Master, MissingOrMalformedIsNamedWithWhatToSet) {
  expect_refused(without(kTorchrun, {"MASTER_ADDR", "MASTER_PORT"}),
                 {"MASTER_ADDR and MASTER_PORT are not set", "set MASTER_ADDR to"});
  expect_refused(without(kTorchrun, {"MASTER_PORT"}),
                 {"MASTER_ADDR is \"node0\", but MASTER_PORT is not set"});
  expect_refused(without(kTorchrun, {"MASTER_ADDR"}),
                 {"MASTER_PORT is \"29500\", but MASTER_ADDR is not set"});
  expect_refused(changed(kTorchrun, {{"MASTER_PORT", "0"}}), {"MASTER_PORT is \"0\""});
  expect_refused(changed(kTorchrun, {{"MASTER_PORT", ""}}), {"the port is missing"});
  expect_refused(changed(kTorchrun, {{"MASTER_ADDR", ""}}), {"the host is missing"});
  expect_refused(changed(kTorchrun, {{"MASTER_ADDR", "tcp://node0"}}),
                 {"MASTER_ADDR is \"tcp://node0\""});
  for (const Variables& launcher : {kOpenMpi, kHydra, kSrun}) {
    expect_refused(changed(launcher, {{"MASTER_PORT", "1"}}), {"MASTER_ADDR is not set"});
  }
}

TEST(Master, IsUsedUnderEveryLauncher) {
  for (const Variables& launcher : {kTorchrun, kOpenMpi, kHydra, kSrun}) {
    expect_master(read(changed(launcher, kMaster)));
  }
  EXPECT_EQ(read(changed(kTorchrun, {{"MASTER_ADDR", "fd00::1"}})).address.endpoints.at(0).host,
            "fd00::1");
}

TEST(OpenMpi, AsMpirunSetsItMeetsAtASocketOfTheJob) {
  const Launcher launcher = read(kOpenMpi);
  EXPECT_EQ(launcher.name, "Open MPI");
  EXPECT_EQ(launcher.rank, 1);
  EXPECT_EQ(launcher.size, 2);
  EXPECT_EQ(launcher.local_rank, 1);
  EXPECT_EQ(launcher.job, "2047016961/178d19b2ac0e81f6-ce6e56dbf55c34d2");
  EXPECT_EQ(launcher.address.token, launcher.job);
  const std::string name = socket_of(kOpenMpi);
  EXPECT_EQ(socket_of(changed(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "0"},
                                         {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                         {"OMPI_MCA_ess_base_vpid", "0"},
                                         {"PMIX_RANK", "0"}})),
            name);
  EXPECT_NE(socket_of(changed(kOpenMpi, {{"PMIX_NAMESPACE", "2047016962"}})), name);
  EXPECT_NE(socket_of(changed(kOpenMpi, {{"OMPI_MCA_orte_precondition_transports", "other"}})),
            name);
}

TEST(OpenMpi, WithoutPmixTakesTheJobIdOfItsOwn) {
  const Launcher launcher =
      read(without(kOpenMpi, {"PMIX_NAMESPACE", "OMPI_MCA_orte_precondition_transports"}));
  EXPECT_EQ(launcher.job, "2047016961");
}

TEST(OpenMpi, OnSeveralHostsSaysToSetMaster) {
  expect_refused(changed(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "4"}}),
                 {"(Open MPI)", "OMPI_COMM_WORLD_LOCAL_SIZE is 2 of 4 ranks", "set MASTER_ADDR"});
  expect_refused(without(kOpenMpi, {"OMPI_COMM_WORLD_LOCAL_SIZE"}),
                 {"OMPI_COMM_WORLD_LOCAL_SIZE does not say", "set MASTER_ADDR"});
  expect_refused(changed(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}}),
                 {"OMPI_COMM_WORLD_LOCAL_SIZE is \"3\""});
  expect_refused(changed(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "x"}}),
                 {"OMPI_COMM_WORLD_LOCAL_SIZE is \"x\""});
}

TEST(OpenMpi, HalfSetIsRefused) {
  expect_refused(without(kOpenMpi, {"OMPI_COMM_WORLD_SIZE"}),
                 {"OMPI_COMM_WORLD_RANK is \"1\", but OMPI_COMM_WORLD_SIZE is not set"});
  expect_refused(without(kOpenMpi, {"OMPI_COMM_WORLD_RANK"}), {"OMPI_COMM_WORLD_RANK is not set"});
}

TEST(Pmi, OfHydraNeedsATokenBecauseItNamesNoJob) {
  expect_refused(kHydra, {"(PMI)", "no job id", "set SYMM_TOKEN"});
  const Variables job = changed(kHydra, {{"SYMM_TOKEN", "mine"}});
  const Launcher launcher = read(job);
  EXPECT_EQ(launcher.name, "PMI");
  EXPECT_EQ(launcher.rank, 1);
  EXPECT_EQ(launcher.size, 2);
  EXPECT_EQ(launcher.local_rank, 1);
  EXPECT_EQ(launcher.address.token, "mine");
  EXPECT_NE(socket_of(job), socket_of(changed(job, {{"SYMM_TOKEN", "other"}})));
}

TEST(Pmi, WithAJobIdMeetsAtItsSocket) {
  const Variables cray = {{"PMI_RANK", "3"},
                          {"PMI_SIZE", "4"},
                          {"PMI_JOBID", "77"},
                          {"PMI_LOCAL_RANK", "3"},
                          {"PMI_LOCAL_SIZE", "4"}};
  const Launcher launcher = read(cray);
  EXPECT_EQ(launcher.job, "77");
  EXPECT_EQ(launcher.local_rank, 3);
  EXPECT_NE(socket_of(cray), socket_of(changed(cray, {{"PMI_JOBID", "78"}})));
  expect_refused(changed(cray, {{"PMI_LOCAL_SIZE", "2"}}),
                 {"PMI_LOCAL_SIZE is 2 of 4 ranks", "set MASTER_ADDR"});
}

TEST(Pmi, UnderSrunLeavesToSlurmWhatOnlySlurmKnows) {
  const Variables both = changed(kSrun, {{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"PMI_FD", "9"}});
  const Launcher launcher = read(both);
  EXPECT_EQ(launcher.name, "Slurm");
  EXPECT_EQ(socket_of(both), socket_of(kSrun));
}

TEST(Pmi, OfMpiexecInsideAnAllocationIsNotTakenForSlurms) {
  // mpiexec started its proxy by srun: Slurm counts one task a node.
  const Launcher launcher =
      read(changed(changed(kHydra, kSrun),
                   {{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SYMM_TOKEN", "t"}}));
  EXPECT_EQ(launcher.name, "PMI");
  EXPECT_EQ(launcher.rank, 1);
  EXPECT_EQ(launcher.size, 2);
}

TEST(Slurm, TakesTheStepAndNotTheJob) {
  const Launcher launcher = read(kSrun);
  EXPECT_EQ(launcher.name, "Slurm");
  EXPECT_EQ(launcher.rank, 2);
  EXPECT_EQ(launcher.size, 4);
  EXPECT_EQ(launcher.local_rank, 2);
  EXPECT_EQ(launcher.job, "4711.3");
  EXPECT_EQ(launcher.address.token, "4711.3");
  EXPECT_NE(socket_of(kSrun), socket_of(changed(kSrun, {{"SLURM_STEP_ID", "4"}})));
  EXPECT_NE(socket_of(kSrun), socket_of(changed(kSrun, {{"SLURM_JOB_ID", "4712"}})));
}

TEST(Slurm, OnSeveralNodesSaysToSetMaster) {
  expect_refused(changed(kSrun, {{"SLURM_STEP_NUM_NODES", "2"}}),
                 {"(Slurm)", "SLURM_STEP_NUM_NODES is 2", "set MASTER_ADDR"});
  expect_refused(without(kSrun, {"SLURM_STEP_NUM_NODES"}), {"SLURM_NNODES is 4"});
  expect_refused(without(kSrun, {"SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"}),
                 {"SLURM_STEP_NUM_NODES does not say", "set MASTER_ADDR"});
}

TEST(Slurm, ABatchScriptIsNotARank) {
  const Variables script = without(kSrun, {"SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS"});
  expect_refused(changed(script, {{"SLURM_PROCID", "0"}}), {"start the program with srun"});
  expect_refused(without(script, {"SLURM_PROCID"}), {"start the program with srun"});
}

TEST(Slurm, HalfSetOrMalformedIsRefused) {
  expect_refused(without(kSrun, {"SLURM_PROCID"}),
                 {"SLURM_STEP_NUM_TASKS is \"4\", but SLURM_PROCID is not set"});
  expect_refused(without(kSrun, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}),
                 {"SLURM_PROCID is \"2\", but SLURM_STEP_NUM_TASKS is not set"});
  expect_refused(changed(kSrun, {{"SLURM_PROCID", "4"}}), {"SLURM_PROCID is \"4\""});
  expect_refused(changed(kSrun, {{"SLURM_STEP_NUM_NODES", "x"}}),
                 {"SLURM_STEP_NUM_NODES is \"x\""});
}

TEST(Precedence, IsTorchrunThenOpenMpiThenPmiThenSlurm) {
  Variables all = kSrun;
  EXPECT_EQ(read(all).name, "Slurm");
  all = changed(all, changed(kHydra, {{"SYMM_TOKEN", "t"}}));
  EXPECT_EQ(read(all).name, "PMI");
  all = changed(all, kOpenMpi);
  EXPECT_EQ(read(all).name, "Open MPI");
  all = changed(all, kTorchrun);
  EXPECT_EQ(read(all).name, "torchrun");
}

TEST(Precedence, NoLauncherAtAllSaysWhatWasLookedFor) {
  expect_refused({{"MASTER_ADDR", "host"}, {"MASTER_PORT", "1"}, {"LOCAL_RANK", "0"}},
                 {"RANK and WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"});
}

TEST(Launcher, ATokenGoesBeforeTheJobAndLeavesTheSocketAlone) {
  const Variables tokened = changed(kSrun, {{"SYMM_TOKEN", "t"}});
  EXPECT_EQ(read(tokened).address.token, "t");
  EXPECT_EQ(read(tokened).job, "4711.3");
  EXPECT_EQ(socket_of(tokened), socket_of(kSrun));
}

TEST(Launcher, ASingleRankNeedsNeitherJobNorHosts) {
  const Variables single = {{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}};
  EXPECT_NE(socket_of(single), socket_of(single));
}

TEST(Launcher, JobIdsOfAnyLengthAndBytesMakeASocketName) {
  const Variables odd = changed(kSrun, {{"SLURM_JOB_ID", std::string(100000, '\xff') + "/@ ,"}});
  EXPECT_EQ(socket_of(odd).find_first_not_of("symm-0123456789abcdef"), std::string::npos);
  EXPECT_LE(read(odd).address.token.size(), kMostToken);
}

TEST(LauncherLocalRank, IsThereWithWhateverElseIsSet) {
  EXPECT_EQ(launcher_local_rank(environment_of({{"LOCAL_RANK", "3"}})), 3);
  EXPECT_EQ(launcher_local_rank(environment_of(kOpenMpi)), 1);
  EXPECT_EQ(launcher_local_rank(environment_of(kHydra)), 1);
  EXPECT_EQ(launcher_local_rank(environment_of(kSrun)), 2);
  EXPECT_EQ(launcher_local_rank(environment_of(changed(kSrun, {{"LOCAL_RANK", "0"}}))), 0);
  EXPECT_EQ(launcher_local_rank(environment_of({{"LOCAL_RANK", "x"}})), -1);
  EXPECT_EQ(launcher_local_rank(environment_of({})), -1);
}

TEST(ProcessEnvironment, TellsUnsetFromEmpty) {
  ASSERT_EQ(setenv("SYMM_TEST_VARIABLE", "", 1), 0);
  EXPECT_EQ(process_environment()("SYMM_TEST_VARIABLE"), "");
  ASSERT_EQ(unsetenv("SYMM_TEST_VARIABLE"), 0);
  EXPECT_EQ(process_environment()("SYMM_TEST_VARIABLE"), std::nullopt);
}

}  // namespace
}  // namespace symm
