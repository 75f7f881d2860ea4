#define _GNU_SOURCE /* pipe2 */

#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* What a rank is told by its environment; not by arguments, which everybody on the machine can
 * read: the address holds a secret. */
static const char rank_variable[] = "SYMM_PERF_RANK"; /* a number, or "mpi" */
static const char address_variable[] = "SYMM_PERF_ADDRESS";
static const char crowded_variable[] = "SYMM_PERF_CROWDED"; /* 1 or 0 */
static const char seed_variable[] = "SYMM_PERF_SEED";
static const char plugin_variable[] = "SYMM_PERF_PLUGIN";

static void fail(const char* what) {
  fprintf(stderr, "symm-perf: %s: %s\n", what, strerror(errno));
  exit(1);
}

/* This program's file; its own name, not /proc/self/exe, is what ps and top show of the ranks. */
static void own_path(char* path, size_t size) {
  const ssize_t length = readlink("/proc/self/exe", path, size - 1);
  if (length < 0) {
    fail("/proc/self/exe");
  }
  path[length] = '\0';
}

static void prepare(struct launch* launch, int ends[2]) {
  size_t needed;
  /* All ranks are on this host. */
  if (symm_address_create("127.0.0.1", launch->address, sizeof launch->address, &needed) !=
      SYMM_OK) {
    fprintf(stderr, "symm-perf: %s\n", symm_last_error());
    exit(1);
  }
  if (pipe2(ends, O_CLOEXEC) != 0) {
    fail("pipe");
  }
  launch->rows = ends[0];
}

static void set_variable(const char* name, const char* value) {
  if (setenv(name, value, 1) != 0) {
    fail("setenv");
  }
}

static int crowded(const struct launch* launch) {
  return launch->options->ranks > launch->machine->cpu_count;
}

static void set_variables(const struct launch* launch) {
  char seed[32];
  snprintf(seed, sizeof seed, "%llu", (unsigned long long)launch->seed);
  set_variable(seed_variable, seed);
  set_variable(address_variable, launch->address);
  set_variable(crowded_variable, crowded(launch) ? "1" : "0");
  if (launch->plugin != NULL) {
    set_variable(plugin_variable, launch->plugin);
  } else {
    unsetenv(plugin_variable);
  }
}

/* In the child: its standard output becomes `output`, its input empty, and it does not outlive its
 * parent. */
static void become_child_until(pid_t parent, int output, int signal_at_end) {
  prctl(PR_SET_PDEATHSIG, signal_at_end);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (getppid() != parent || null < 0 || dup2(null, STDIN_FILENO) < 0 ||
      dup2(output < 0 ? null : output, STDOUT_FILENO) < 0) {
    _exit(127);
  }
}

void launch_become_child(pid_t parent, int output) { become_child_until(parent, output, SIGKILL); }

static void exec_failed(const char* program) {
  fprintf(stderr, "symm-perf: cannot run %s: %s\n", program, strerror(errno));
  _exit(127);
}

/* The threads that CUDA and NCCL start would share a rank's CPU with it. */
static void pin(const struct machine* machine, const struct perf_options* options, int rank) {
  if (!options->gpu) {
    machine_pin(machine, rank, options->ranks);
  }
}

void launch_processes(struct launch* launch) {
  int ends[2];
  prepare(launch, ends);
  const pid_t parent = getpid();
  char self[4096];
  own_path(self, sizeof self);
  set_variables(launch);
  for (int rank = 0; rank < launch->options->ranks; ++rank) {
    char number[16];
    snprintf(number, sizeof number, "%d", rank);
    set_variable(rank_variable, number);
    const pid_t child = fork();
    if (child < 0) {
      const int error = errno;
      for (int i = 0; i < launch->child_count; ++i) {
        kill(launch->children[i], SIGKILL);
      }
      errno = error;
      fail("fork");
    }
    if (child == 0) {
      launch_become_child(parent, rank == 0 ? ends[1] : -1);
      pin(launch->machine, launch->options, rank);
      execv(self, launch->argv);
      exec_failed(self);
    }
    launch->children[launch->child_count++] = child;
  }
  unsetenv(rank_variable);
  close(ends[1]);
}

/* ---- Threads ---- */

struct thread_start {
  struct worker worker;
  const struct machine* machine;
};

static void* run_thread(void* argument) {
  struct thread_start* start = argument;
  const struct worker* worker = &start->worker;
  pin(start->machine, worker->options, worker->rank);
  worker_run(worker);
  if (worker->rows != NULL) {
    fclose(worker->rows);
  }
  free(start);
  return NULL;
}

void launch_threads(struct launch* launch) {
  int ends[2];
  prepare(launch, ends);
  for (int rank = 0; rank < launch->options->ranks; ++rank) {
    struct thread_start* start = calloc(1, sizeof *start);
    if (start == NULL) {
      fail("calloc");
    }
    start->machine = launch->machine;
    start->worker.options = launch->options;
    start->worker.crowded = crowded(launch);
    start->worker.rank = rank;
    start->worker.address = launch->address;
    start->worker.seed = launch->seed;
    start->worker.keeps_watch = rank == 0;
    start->worker.rows = rank == 0 ? fdopen(ends[1], "w") : NULL;
    errno = pthread_create(&launch->threads[rank], NULL, run_thread, start);
    if (errno != 0) {
      fail("pthread_create");
    }
    ++launch->thread_count;
  }
}

/* ---- mpirun ---- */

int launch_in_path(const char* name) {
  const char* path = getenv("PATH");
  while (path != NULL && *path != '\0') {
    char candidate[4096];
    const size_t length = strcspn(path, ":");
    snprintf(candidate, sizeof candidate, "%.*s/%s", (int)length, path, name);
    if (access(candidate, X_OK) == 0) {
      return 1;
    }
    path += length + (path[length] == ':');
  }
  return 0;
}

/* The major version of Open MPI's mpirun; 0 if it is another's. */
static int open_mpi_version(void) {
  FILE* output = popen("mpirun --version 2>/dev/null </dev/null", "r");
  char line[256];
  int version = 0;
  while (output != NULL && fgets(line, sizeof line, output) != NULL) {
    const char* name = strstr(line, "Open MPI");
    if (name != NULL && version == 0) {
      name += strcspn(name, "0123456789");
      version = atoi(name);
    }
  }
  if (output != NULL) {
    pclose(output);
  }
  return version;
}

int launch_find_file(const char* name, const char* variable, char* path, size_t size) {
  const char* const named = getenv(variable);
  char directory[2048];
  if (named != NULL && *named != '\0') {
    snprintf(path, size, "%s", named);
    return access(path, R_OK) == 0;
  }
  const ssize_t length = readlink("/proc/self/exe", directory, sizeof directory - 1);
  directory[length > 0 ? length : 0] = '\0';
  char* slash = strrchr(directory, '/');
  if (slash != NULL) {
    *slash = '\0';
  }
  const char* const places[] = {"%s/%s", "%s/../lib/symm/%s", "%s/../lib64/symm/%s",
#ifdef SYMM_PERF_LIBDIR /* from the installed programs to the libraries */
                                "%s/" SYMM_PERF_LIBDIR "/symm/%s",
#endif
                                NULL};
  int found = 0;
  for (int i = 0; places[i] != NULL && !found; ++i) {
    snprintf(path, size, places[i], directory, name);
    found = access(path, R_OK) == 0;
  }
  return found;
}

const char* launch_find_mpi(char* plugin, size_t size) {
  if (!launch_find_file("symm-perf-mpi.so", "SYMM_PERF_MPI", plugin, size)) {
    const char* const named = getenv("SYMM_PERF_MPI");
    return named != NULL && *named != '\0'
               ? "SYMM_PERF_MPI names a file that cannot be read"
               : "the MPI plug-in is not there (build symm where libopenmpi-dev is installed)";
  }
  if (!launch_in_path("mpirun")) {
    return "mpirun is not there (install openmpi-bin)";
  }
  if (open_mpi_version() == 0) {
    return "mpirun is not Open MPI's";
  }
  return NULL;
}

void launch_mpirun(struct launch* launch) {
  int ends[2];
  prepare(launch, ends);
  set_variables(launch);
  set_variable(rank_variable, "mpi");
  /* Open MPI runs as root only when told twice; inside a container that is what one is. */
  set_variable("OMPI_ALLOW_RUN_AS_ROOT", "1");
  set_variable("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");

  char ranks[16], self[4096];
  snprintf(ranks, sizeof ranks, "%d", launch->options->ranks);
  own_path(self, sizeof self);
  int argument_count = 0;
  while (launch->argv[argument_count] != NULL) {
    ++argument_count;
  }
  const char** arguments = calloc((size_t)argument_count + 32, sizeof *arguments);
  if (arguments == NULL) {
    fail("calloc");
  }
  int n = 0;
  arguments[n++] = "mpirun";
  arguments[n++] = "-n";
  arguments[n++] = ranks;
  if (launch->options->ranks <= launch->machine->core_count) {
    arguments[n++] = "--bind-to";
    arguments[n++] = "core";
  } else if (launch->options->ranks <= launch->machine->cpu_count) {
    arguments[n++] = "--use-hwthread-cpus";
    arguments[n++] = "--bind-to";
    arguments[n++] = "hwthread";
  } else {
    arguments[n++] = "--oversubscribe";
    arguments[n++] = "--bind-to";
    arguments[n++] = "none";
  }
  /* Shared memory and nothing else; Open MPI 5 renamed it. */
  arguments[n++] = "--mca";
  arguments[n++] = "pml";
  arguments[n++] = "ob1";
  arguments[n++] = "--mca";
  arguments[n++] = "btl";
  arguments[n++] = open_mpi_version() >= 5 ? "self,sm" : "self,vader";
  arguments[n++] = self;
  for (int i = 1; i < argument_count; ++i) {
    arguments[n++] = launch->argv[i];
  }

  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) {
    fail("fork");
  }
  if (child == 0) {
    become_child_until(parent, ends[1], SIGTERM); /* mpirun then ends its ranks */
    execvp("mpirun", (char* const*)arguments);
    exec_failed("mpirun");
  }
  launch->children[launch->child_count++] = child;
  unsetenv(rank_variable);
  free(arguments);
  close(ends[1]);
}

/* ---- Watching ---- */

static void describe_end(const struct launch* launch, int index, int status) {
  char who[32];
  if (launch->plugin != NULL) {
    snprintf(who, sizeof who, "mpirun");
  } else {
    snprintf(who, sizeof who, "%s %d", launch->name != NULL ? launch->name : "rank", index);
  }
  if (WIFSIGNALED(status)) {
    fprintf(stderr, "symm-perf: %s was ended by signal %d (%s)\n", who, WTERMSIG(status),
            strsignal(WTERMSIG(status)));
  } else {
    fprintf(stderr, "symm-perf: %s ended with status %d\n", who, WEXITSTATUS(status));
  }
}

static void kill_all(const struct launch* launch) {
  for (int i = 0; i < launch->child_count; ++i) {
    if (launch->children[i] != 0) {
      kill(launch->children[i], SIGKILL);
    }
  }
}

/* Takes note of children that have ended, kills all of them after a failure. Returns how many are
 * left. */
static int reap(struct launch* launch) {
  int left = 0;
  for (int i = 0; i < launch->child_count; ++i) {
    int status;
    if (launch->children[i] == 0) {
      continue;
    }
    if (waitpid(launch->children[i], &status, WNOHANG) != launch->children[i]) {
      ++left;
      continue;
    }
    launch->children[i] = 0;
    if (status != 0 && !launch->failed) {
      launch->failed = 1;
      describe_end(launch, i, status);
      kill_all(launch);
    }
  }
  return left;
}

/* The pipe has no more to give: waits for the ranks. */
static void finish(struct launch* launch) {
  while (reap(launch) > 0) {
    poll(NULL, 0, 10);
  }
  for (int i = 0; i < launch->thread_count; ++i) {
    pthread_join(launch->threads[i], NULL);
  }
  launch->thread_count = 0;
  close(launch->rows);
}

int launch_read_line(struct launch* launch, char* line, size_t size) {
  size_t length = 0;
  const time_t begin = time(NULL);
  for (;;) {
    struct pollfd ready = {launch->rows, POLLIN, 0};
    reap(launch);
    if (poll(&ready, 1, 100) <= 0) {
      if (launch->silence_s > 0 && time(NULL) - begin > launch->silence_s && !launch->failed) {
        fprintf(stderr, "symm-perf: %s said nothing for %d s (--timeout); ended\n", launch->name,
                launch->silence_s);
        launch->failed = 1;
        kill_all(launch);
      }
      continue;
    }
    char next;
    const ssize_t got = read(launch->rows, &next, 1);
    if (got == 0) {
      finish(launch);
      return 0;
    }
    if (got < 0) {
      continue; /* a signal */
    }
    if (next == '\n') {
      line[length] = '\0';
      return 1;
    }
    if (length + 1 < size) {
      line[length++] = next;
    }
  }
}

int launch_is_worker(struct worker* worker) {
  const char* rank = getenv(rank_variable);
  const char* address = getenv(address_variable);
  const char* crowded_text = getenv(crowded_variable);
  const char* seed = getenv(seed_variable);
  if (rank == NULL || address == NULL || seed == NULL) {
    return 0;
  }
  /* The parent may have gone already; where mpirun starts the ranks it is mpirun. */
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  worker->rank = strcmp(rank, "mpi") == 0 ? -1 : atoi(rank);
  worker->crowded = crowded_text != NULL && strcmp(crowded_text, "1") == 0;
  worker->address = address;
  worker->seed = strtoull(seed, NULL, 10);
  worker->plugin = getenv(plugin_variable);
  worker->rows = stdout;
  worker->keeps_watch = 1;
  return 1;
}
