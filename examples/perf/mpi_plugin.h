/* MPI as symm-perf sees it: a shared object of its own, so that symm-perf runs where there is no
 * MPI. */
#ifndef SYMM_PERF_MPI_PLUGIN_H
#define SYMM_PERF_MPI_PLUGIN_H

#include <stddef.h>
#include <symm.h>

struct mpi_plugin {
  int interface_version; /* MPI_PLUGIN_VERSION */
  int (*init)(void);     /* 0, or MPI's error; so all of these */
  int (*rank)(void);
  int (*size)(void);
  void (*library)(char* buffer, size_t size); /* "Open MPI v4.1.4" */
  int (*has_dtype)(symm_dtype dtype);
  /* AVG is not among MPI's operations. input == output: in place. */
  int (*all_reduce)(const void* input, void* output, size_t count, symm_dtype dtype, symm_op op);
  int (*finalize)(void);
};

enum { MPI_PLUGIN_VERSION = 1 };

/* The one symbol of the shared object. */
const struct mpi_plugin* symm_perf_mpi_plugin(void);

#endif
