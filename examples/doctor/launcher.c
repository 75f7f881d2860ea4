/* What launchers' variables say, read as env:// reads them. */
#define _POSIX_C_SOURCE 200809L

#include <stdlib.h>
#include <string.h>

#include "../json.h"
#include "check.h"

static const char section[] = "Launcher (env://)";

enum { most_names = 3, most_ranks = 0x7fffffff, most_token = 256 };

/* Of several names for one thing the first that is set counts. In the order in which env:// asks
 * for launchers; the first whose rank or size is set counts. */
static const struct launcher {
  const char* name;
  const char* rank;
  const char* size[most_names];
  const char* local_rank[most_names];
  const char* local_size[most_names]; /* or how many hosts there are */
  const char* job[most_names];
  const char* start;
} launchers[] = {
    {"torchrun",
     "RANK",
     {"WORLD_SIZE"},
     {"LOCAL_RANK"},
     {NULL},
     {NULL},
     "torchrun --nproc-per-node 2 PROGRAM"},
    {"Open MPI",
     "OMPI_COMM_WORLD_RANK",
     {"OMPI_COMM_WORLD_SIZE"},
     {"OMPI_COMM_WORLD_LOCAL_RANK"},
     {"OMPI_COMM_WORLD_LOCAL_SIZE"},
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"},
     "mpirun -n 2 PROGRAM"},
    {"PMI",
     "PMI_RANK",
     {"PMI_SIZE"},
     {"MPI_LOCALRANKID", "PMI_LOCAL_RANK"},
     {"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"},
     {"PMI_JOBID", "I_MPI_HYDRA_UUID"},
     "mpiexec -n 2 PROGRAM"},
    {"Slurm",
     "SLURM_PROCID",
     {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
     {"SLURM_LOCALID"},
     {"SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"},
     {"SLURM_JOB_ID", "SLURM_JOBID"},
     "srun -n 2 PROGRAM"},
};
enum { launcher_count = sizeof launchers / sizeof launchers[0], torch = 0, pmi = 2, slurm = 3 };

static const char* const others[] = {"MASTER_ADDR",
                                     "MASTER_PORT",
                                     "TORCHELASTIC_USE_AGENT_STORE",
                                     "TORCHELASTIC_RUN_ID",
                                     "SLURM_STEP_ID",
                                     "SLURM_STEPID",
                                     NULL};

/* Of names that end with NULL or fill their array. */
static const char* first_set(const char* const* names, int most) {
  for (int i = 0; i < most && names[i] != NULL; ++i) {
    if (getenv(names[i]) != NULL) {
      return names[i];
    }
  }
  return NULL;
}

static const char* first_value(const char* const* names, int most) {
  for (int i = 0; i < most && names[i] != NULL; ++i) {
    const char* value = getenv(names[i]);
    if (value != NULL && value[0] != '\0') {
      return value;
    }
  }
  return "";
}

static void append(char* text, const char* const* names, int most) {
  for (int i = 0; i < most && names[i] != NULL; ++i) {
    const char* value = getenv(names[i]);
    const size_t length = strlen(text);
    if (value != NULL && length < CHECK_TEXT - 1) {
      snprintf(text + length, CHECK_TEXT - length, "%s%s=%.64s", length > 0 ? " " : "", names[i],
               value);
    }
  }
}

static void show_variables(struct checks* checks) {
  char text[CHECK_TEXT] = "";
  for (int i = 0; i < launcher_count; ++i) {
    append(text, &launchers[i].rank, 1);
    append(text, launchers[i].size, most_names);
    append(text, launchers[i].local_rank, most_names);
    append(text, launchers[i].local_size, most_names);
    append(text, launchers[i].job, most_names);
  }
  append(text, others, sizeof others / sizeof others[0]);
  const char* token = getenv("SYMM_TOKEN");
  checks_add(checks, section, "variables", CHECK_NOTE, NULL, "%s%s",
             text[0] != '\0' ? text : "none is set",
             token == NULL      ? ""
             : token[0] == '\0' ? "; SYMM_TOKEN is set, but empty"
                                : "; SYMM_TOKEN is set (not shown)");
}

/* NULL where `text` is a number from `least` to `most`, else what is wrong with it. */
static const char* fault_of(const char* text, long least, long most, long* value) {
  if (text == NULL) {
    return "is not set";
  }
  if (text[0] == '\0') {
    return "is set, but empty";
  }
  if (strspn(text, "0123456789") != strlen(text)) {
    return "is not a number";
  }
  *value = strtol(text, NULL, 10); /* LONG_MAX for what is longer */
  return *value < least ? "is too small" : *value > most ? "is too large" : NULL;
}

/* Says what is wrong with one variable and what it should be. */
static void blame(struct checks* checks, const char* name, const char* variable, const char* fault,
                  const char* meaning, const struct launcher* launcher) {
  const char* value = getenv(variable);
  char remedy[CHECK_TEXT];
  snprintf(remedy, sizeof remedy, "set %s to %s, or start the program with %s, or unset %s",
           variable, meaning, launcher->start,
           value != NULL ? "it and the launcher's other variables" : "the launcher's others");
  if (value != NULL && value[0] != '\0') {
    checks_add(checks, section, name, CHECK_WARN, remedy, "%s: %s is '%.64s', which %s",
               launcher->name, variable, value, fault);
  } else {
    checks_add(checks, section, name, CHECK_WARN, remedy, "%s: %s %s", launcher->name, variable,
               fault);
  }
}

/* srun --mpi=pmi2 sets PMI's variables beside Slurm's equal ones; what they lack Slurm's have. */
static int pmi_is_slurms(void) {
  const char* theirs = getenv("SLURM_PROCID");
  const char* rank = getenv("PMI_RANK");
  return first_set(launchers[pmi].local_size, most_names) == NULL && theirs != NULL &&
         rank != NULL && strcmp(theirs, rank) == 0 &&
         strcmp(first_value(launchers[pmi].size, most_names),
                first_value(launchers[slurm].size, most_names)) == 0;
}

static const struct launcher* find_launcher(void) {
  for (int i = 0; i < launcher_count; ++i) {
    if ((getenv(launchers[i].rank) != NULL || first_set(launchers[i].size, most_names) != NULL) &&
        (i != pmi || !pmi_is_slurms())) {
      return &launchers[i];
    }
  }
  return NULL;
}

static int is_task(struct checks* checks) {
  static const char* const step[] = {"SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_NUM_TASKS"};
  const char* tasks = getenv("SLURM_NTASKS");
  if (first_set(step, sizeof step / sizeof step[0]) != NULL ||
      (tasks != NULL && strcmp(tasks, "1") == 0)) {
    return 1;
  }
  checks_add(checks, section, "rank and size", CHECK_WARN, "start the program with srun",
             "Slurm: SLURM_STEP_ID is not set: this is the job's script or shell and not one of "
             "its tasks");
  return 0;
}

static int check_rank_and_size(struct checks* checks, const struct launcher* launcher,
                               struct claim* claim) {
  static const char name[] = "rank and size";
  const char* size = first_set(launcher->size, most_names);
  size = size != NULL ? size : launcher->size[0];
  const char* fault = fault_of(getenv(size), 1, most_ranks, &claim->size);
  if (fault != NULL) {
    blame(checks, name, size, fault, "the number of ranks", launcher);
    return 0;
  }
  char meaning[96];
  fault = fault_of(getenv(launcher->rank), 0, claim->size - 1, &claim->rank);
  if (fault != NULL) {
    snprintf(meaning, sizeof meaning, "this process's rank, 0 to %ld", claim->size - 1);
    blame(checks, name, launcher->rank, fault, meaning, launcher);
    return 0;
  }
  checks_add(checks, section, name, CHECK_OK, NULL, "env:// would be rank %ld of %ld, as %s says",
             claim->rank, claim->size, launcher->name);
  return 1;
}

static int check_local_rank(struct checks* checks, const struct launcher* launcher,
                            const char* report, long size) {
  static const char name[] = "local rank";
  char gpus[16] = "", meaning[96];
  long local_rank = 0;
  const char* variable = first_set(launcher->local_rank, most_names);
  const int has_gpus = report != NULL && json_text(report, "cuda.gpu_count", gpus, sizeof gpus);
  const long gpu_count = has_gpus ? strtol(gpus, NULL, 10) : 0;
  if (variable == NULL) {
    if (gpu_count > 1) {
      snprintf(meaning, sizeof meaning, "set %s, or pass an ordinal as device",
               launcher->local_rank[0]);
      checks_add(checks, section, name, CHECK_NOTE, meaning,
                 "%s is not set: SYMM_LOCAL_GPU cannot choose among %ld GPUs",
                 launcher->local_rank[0], gpu_count);
    }
    return 1;
  }
  const char* fault = fault_of(getenv(variable), 0, size - 1, &local_rank);
  if (fault != NULL) {
    snprintf(meaning, sizeof meaning, "this process's rank among those of its host, 0 to %ld",
             size - 1);
    blame(checks, name, variable, fault, meaning, launcher);
    return 0;
  }
  if (gpu_count > 1 && local_rank >= gpu_count) {
    checks_add(checks, section, name, CHECK_WARN,
               "start no more ranks on a host than it has GPUs, or pass an ordinal as device and "
               "SYMM_COMM_SHARE_GPU as flag",
               "%s is %ld, but only %ld GPUs are visible: SYMM_LOCAL_GPU has none for it", variable,
               local_rank, gpu_count);
  } else {
    checks_add(checks, section, name, CHECK_OK, NULL, "%ld (%s)", local_rank, variable);
  }
  return 1;
}

static const char set_master[] =
    "set MASTER_ADDR to a name or number of rank 0's host and MASTER_PORT to a free port there, "
    "the same on every rank";

/* Both set and of the right form; only then does it make sense to look who listens there. */
static int check_master_form(struct checks* checks) {
  static const char name[] = "meeting place";
  const char* host = getenv("MASTER_ADDR");
  const char* port = getenv("MASTER_PORT");
  long number = 0;
  const char* port_fault = fault_of(port, 1, 65535, &number);
  if (host == NULL || host[0] == '\0') {
    checks_add(checks, section, name, CHECK_WARN, set_master, "MASTER_ADDR %s%s%s",
               host == NULL ? "is not set" : "is set, but empty",
               port != NULL ? ", MASTER_PORT is " : "", port != NULL ? port : "");
    return 0;
  }
  if (port_fault != NULL) {
    checks_add(checks, section, name, CHECK_WARN, set_master,
               "MASTER_PORT %s%.64s%s%s (a port is a number from 1 to 65535)",
               port != NULL ? "is '" : "", port != NULL ? port : "",
               port != NULL ? "', which " : "", port_fault);
    return 0;
  }
  return 1;
}

/* How many ranks of the job this host has, or (Slurm) how many hosts the job; 0: not said. */
static int check_local_size(struct checks* checks, const struct launcher* launcher, long size,
                            long* number) {
  const int is_slurm = launcher == &launchers[slurm];
  const char* variable = first_set(launcher->local_size, most_names);
  *number = 0;
  if (variable == NULL) {
    return 1;
  }
  const char* fault = fault_of(getenv(variable), 1, is_slurm ? most_ranks : size, number);
  if (fault != NULL) {
    blame(checks, "local size", variable, fault,
          is_slurm ? "the number of hosts" : "the number of the job's ranks on this host",
          launcher);
  }
  return fault == NULL;
}

/* Without MASTER_ADDR the ranks of one host meet at a socket named by the job. */
static int check_one_host(struct checks* checks, const struct launcher* launcher, long size,
                          long local_size) {
  static const char name[] = "meeting place";
  const char* variable = first_set(launcher->local_size, most_names);
  const char* token = getenv("SYMM_TOKEN");
  if (size > 1 && local_size != (launcher == &launchers[slurm] ? 1 : size)) {
    checks_add(checks, section, name, CHECK_WARN, set_master,
               variable == NULL ? "%s does not say whether all ranks are on one host, and "
                                  "MASTER_ADDR and MASTER_PORT are not set"
                                : "%s says that the ranks are on several hosts, and MASTER_ADDR "
                                  "and MASTER_PORT are not set",
               variable == NULL ? launcher->local_size[0] : variable);
    return 0;
  }
  if (size > 1 && first_value(launcher->job, most_names)[0] == '\0' &&
      (token == NULL || token[0] == '\0')) {
    checks_add(checks, section, name, CHECK_WARN,
               "set SYMM_TOKEN to a text of this job's own on every rank, or set MASTER_ADDR and "
               "MASTER_PORT",
               "%s gives no job id that would tell this job from another (%s is not set)",
               launcher->name, launcher->job[0]);
    return 0;
  }
  checks_add(checks, section, name, CHECK_OK, "for several hosts set MASTER_ADDR and MASTER_PORT",
             "an abstract unix socket of this host, named by user and job");
  return 1;
}

static void check_agent(struct checks* checks) {
  const char* agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
  if (agent != NULL && strcmp(agent, "True") != 0 && strcmp(agent, "False") != 0) {
    checks_add(checks, section, "agent's store", CHECK_WARN,
               "set it to True or False, as torchrun does, or unset it",
               "TORCHELASTIC_USE_AGENT_STORE is '%.64s': only True makes PyTorch and symm look for "
               "a store of torchrun's at MASTER_ADDR:MASTER_PORT",
               agent);
  }
}

static int check_token(struct checks* checks) {
  const char* token = getenv("SYMM_TOKEN");
  if (token == NULL || strlen(token) <= most_token) {
    return 1;
  }
  checks_add(checks, section, "token", CHECK_WARN, "set a shorter one, the same on every rank",
             "SYMM_TOKEN has %lu bytes, at most %d are allowed", (unsigned long)strlen(token),
             most_token);
  return 0;
}

void check_launcher(struct checks* checks, const char* report, struct claim* claim) {
  memset(claim, 0, sizeof *claim);
  show_variables(checks);
  const struct launcher* launcher = find_launcher();
  if (launcher == NULL) {
    checks_add(checks, section, "rank and size", CHECK_NOTE,
               "for env://: torchrun, mpirun or srun, or RANK, WORLD_SIZE, MASTER_ADDR and "
               "MASTER_PORT; other addresses need none of this",
               "no launcher started this process");
    return;
  }
  if ((launcher == &launchers[slurm] && !is_task(checks)) ||
      !check_rank_and_size(checks, launcher, claim)) {
    return;
  }
  long local_size;
  const int local_rank = check_local_rank(checks, launcher, report, claim->size);
  const int local = check_local_size(checks, launcher, claim->size, &local_size);
  const int token = check_token(checks);
  int place = 0;
  claim->has_address = launcher == &launchers[torch] || getenv("MASTER_ADDR") != NULL ||
                       getenv("MASTER_PORT") != NULL;
  if (claim->has_address) {
    check_agent(checks);
    place = check_master_form(checks);
  } else if (local) {
    place = check_one_host(checks, launcher, claim->size, local_size);
  }
  claim->usable = local_rank && local && token && place;
}
