/* Starts the ranks: as processes, as threads, or by mpirun. What rank 0 writes comes through a
 * pipe. */
#ifndef SYMM_PERF_LAUNCH_H
#define SYMM_PERF_LAUNCH_H

#include <pthread.h>
#include <sys/types.h>

#include "machine.h"
#include "options.h"
#include "worker.h"

struct launch {
  const struct perf_options* options;
  const struct machine* machine;
  uint64_t seed;
  const char* plugin; /* with mpirun */
  const char* name;   /* of a child in messages, before its number; NULL: "rank" */
  int silence_s;      /* children that write nothing for so long are killed; 0: never */
  char address[SYMM_ADDRESS_SIZE];
  char** argv; /* of symm-perf: its processes get the same */
  int rows;    /* the pipe's end to read */
  int child_count;
  pid_t children[PERF_MAX_RANKS]; /* 0: ended */
  pthread_t threads[PERF_MAX_RANKS];
  int thread_count;
  int failed;
};

/* Fill options, machine, seed, argv (and plugin) and zero the rest; then one of these. Each ends
 * the process with a message where the system refuses. */
void launch_processes(struct launch* launch);
void launch_threads(struct launch* launch);
void launch_mpirun(struct launch* launch);
/* PyTorch's ranks (torch_ranks.py). NULL, or why they cannot be started. */
const char* launch_torch(struct launch* launch);

/* The next line that rank 0 wrote, without its newline; 0 at the end, when every rank has ended
 * too. Watches the ranks: where one fails the others are killed and `failed` is set. */
int launch_read_line(struct launch* launch, char* line, size_t size);

/* Whether this process is a rank that one of the above has started; fills `worker` if so. */
int launch_is_worker(struct worker* worker);

/* 0, or why MPI cannot be timed here. Fills in the plug-in's path. */
const char* launch_find_mpi(char* plugin, size_t size);

/* For the above. A file that belongs to symm-perf: the environment variable's, or beside the
 * program or among its libraries; 0: there is none. */
int launch_find_file(const char* name, const char* variable, char* path, size_t size);
int launch_in_path(const char* program);
/* In a child: its standard output becomes `output`, or nothing for -1; it dies with its parent. */
void launch_become_child(pid_t parent, int output);

#endif
