#define _POSIX_C_SOURCE 200809L

#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "check.h"

static const char section[] = "Launcher (env://)";

/* In the order in which env:// asks for them; the first whose rank or size is set counts. */
static const struct launcher {
  const char* name;
  const char* rank;
  const char* size[2]; /* the second is asked for where the first is not set */
  const char* start;
} launchers[] = {
    {"torchrun", "RANK", {"WORLD_SIZE", NULL}, "torchrun --nproc-per-node 2 PROGRAM"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", {"OMPI_COMM_WORLD_SIZE", NULL}, "mpirun -n 2 PROGRAM"},
    {"PMI", "PMI_RANK", {"PMI_SIZE", NULL}, "mpiexec -n 2 PROGRAM"},
    {"Slurm", "SLURM_PROCID", {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}, "srun -n 2 PROGRAM"},
};
enum { launcher_count = sizeof launchers / sizeof launchers[0] };

static const char* const others[] = {"LOCAL_RANK",
                                     "MASTER_ADDR",
                                     "MASTER_PORT",
                                     "TORCHELASTIC_USE_AGENT_STORE",
                                     "OMPI_COMM_WORLD_LOCAL_RANK",
                                     "OMPI_COMM_WORLD_LOCAL_SIZE",
                                     "PMI_LOCAL_RANK",
                                     "PMI_LOCAL_SIZE",
                                     "MPI_LOCALRANKID",
                                     "MPI_LOCALNRANKS",
                                     "SLURM_LOCALID",
                                     "SLURM_STEP_ID",
                                     "SLURM_JOB_ID",
                                     "SLURM_NNODES",
                                     NULL};

static const char* size_of(const struct launcher* launcher) {
  const char* first = getenv(launcher->size[0]);
  return first != NULL || launcher->size[1] == NULL ? first : getenv(launcher->size[1]);
}

static void append(char* text, const char* name) {
  const char* value = getenv(name);
  const size_t length = strlen(text);
  if (value != NULL && length < CHECK_TEXT - 1) {
    snprintf(text + length, CHECK_TEXT - length, "%s%s=%.64s", length > 0 ? " " : "", name, value);
  }
}

static void show_variables(struct checks* checks) {
  char text[CHECK_TEXT] = "";
  for (int i = 0; i < launcher_count; ++i) {
    append(text, launchers[i].rank);
    append(text, launchers[i].size[0]);
    if (launchers[i].size[1] != NULL) {
      append(text, launchers[i].size[1]);
    }
  }
  for (int i = 0; others[i] != NULL; ++i) {
    append(text, others[i]);
  }
  const char* token = getenv("SYMM_TOKEN");
  checks_add(checks, section, "variables", CHECK_NOTE, NULL, "%s%s",
             text[0] != '\0' ? text : "none is set",
             token == NULL      ? ""
             : token[0] == '\0' ? "; SYMM_TOKEN is set, but empty"
                                : "; SYMM_TOKEN is set (not shown)");
}

/* Whether `text` is a number from `least` to `most`. */
static int is_number(const char* text, long least, long most, long* value) {
  char* end;
  *value = text == NULL ? 0 : strtol(text, &end, 10);
  return text != NULL && *text >= '0' && *text <= '9' && *end == '\0' && *value >= least &&
         *value <= most;
}

static void check_master(struct checks* checks, int needed) {
  const char* host = getenv("MASTER_ADDR");
  const char* port = getenv("MASTER_PORT");
  long number;
  static const char remedy[] =
      "set MASTER_ADDR to rank 0's host and MASTER_PORT to a free port there, the same on every "
      "rank";
  if (host == NULL && port == NULL) {
    if (needed) {
      checks_add(checks, section, "meeting place", CHECK_WARN, remedy,
                 "MASTER_ADDR and MASTER_PORT are not set");
    } else {
      checks_add(checks, section, "meeting place", CHECK_NOTE,
                 "for several hosts set MASTER_ADDR and MASTER_PORT",
                 "an abstract unix socket of this host, named by user and job");
    }
    return;
  }
  if (host == NULL || !is_number(port, 1, 65535, &number)) {
    checks_add(checks, section, "meeting place", CHECK_WARN, remedy,
               "MASTER_ADDR is %s%s, MASTER_PORT is %s%s", host != NULL ? "" : "not set",
               host != NULL ? host : "", port != NULL ? "" : "not set", port != NULL ? port : "");
    return;
  }
  struct addrinfo hints, *found = NULL;
  memset(&hints, 0, sizeof hints);
  hints.ai_socktype = SOCK_STREAM;
  const int error = getaddrinfo(host, port, &hints, &found);
  if (error != 0) {
    checks_add(checks, section, "meeting place", CHECK_WARN,
               "set MASTER_ADDR to a name or number of rank 0's host that this host knows",
               "MASTER_ADDR %s is not known: %s", host, gai_strerror(error));
    return;
  }
  freeaddrinfo(found);
  const char* agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
  checks_add(checks, section, "meeting place", CHECK_OK, NULL,
             agent != NULL && strcmp(agent, "True") == 0
                 ? "an entry in torchrun's own store at %s:%s"
                 : "tcp://%s:%s, served by rank 0, or a PyTorch store that has the port",
             host, port);
}

static void check_claim(struct checks* checks, const struct launcher* launcher) {
  const char* rank_text = getenv(launcher->rank);
  const char* size_text = size_of(launcher);
  char remedy[256];
  long rank = 0, size = 0;
  if (!is_number(size_text, 1, 0x7fffffff, &size) || !is_number(rank_text, 0, size - 1, &rank)) {
    snprintf(remedy, sizeof remedy, "start the program with %s, or unset both, or set both",
             launcher->start);
    checks_add(checks, section, "rank and size", CHECK_WARN, remedy, "%s: %s is %s, %s is %s",
               launcher->name, launcher->rank, rank_text != NULL ? rank_text : "not set",
               launcher->size[0], size_text != NULL ? size_text : "not set");
    return;
  }
  checks_add(checks, section, "rank and size", CHECK_OK, NULL,
             "env:// would be rank %ld of %ld, as %s says", rank, size, launcher->name);
  check_master(checks, launcher == &launchers[0]);
}

void check_launcher(struct checks* checks) {
  show_variables(checks);
  for (int i = 0; i < launcher_count; ++i) {
    if (getenv(launchers[i].rank) != NULL || size_of(&launchers[i]) != NULL) {
      check_claim(checks, &launchers[i]);
      return;
    }
  }
  checks_add(checks, section, "rank and size", CHECK_NOTE,
             "for env://: torchrun, mpirun or srun, or RANK, WORLD_SIZE, MASTER_ADDR and "
             "MASTER_PORT; other addresses need none of this",
             "no launcher started this process");
}
