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

/* The next line that rank 0 wrote, without its newline; 0 at the end, when every rank has ended
 * too. Watches the ranks: where one fails the others are killed and `failed` is set. */
int launch_read_line(struct launch* launch, char* line, size_t size);

/* Whether this process is a rank that one of the above has started; fills `worker` if so. */
int launch_is_worker(struct worker* worker);

/* 0, or why MPI cannot be timed here. Fills in the plug-in's path. */
const char* launch_find_mpi(char* plugin, size_t size);

#endif
