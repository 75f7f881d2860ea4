/* The life of one rank: it meets the others, measures every cell, and rank 0 tells the results. */
#ifndef SYMM_PERF_WORKER_H
#define SYMM_PERF_WORKER_H

#include <stdint.h>
#include <stdio.h>

#include "options.h"

struct worker {
  const struct perf_options* options;
  int crowded; /* ranks outnumber CPUs; a rank that is bound to one cannot tell */
  int rank;    /* -1: MPI says */
  const char* address;
  const char* plugin; /* path of the MPI plug-in; NULL: none */
  uint64_t seed;
  FILE* rows;      /* rank 0 writes its rows there */
  int keeps_watch; /* one rank of each process does */
};

/* Returns when everything was measured; ends the process with a message where something fails. */
void worker_run(const struct worker* worker);

/* Lines that rank 0 writes beside the rows of row.h. */
#define WORKER_STARTED "@started " /* then the MPI library's name, or "-": every rank is there */
#define WORKER_CELL "@cell "       /* then number, dtype, op and bytes: about to be measured */
#define WORKER_FLOOR "@floor "     /* then a name and a figure of the machine */
#define WORKER_DONE "@done"

#endif
