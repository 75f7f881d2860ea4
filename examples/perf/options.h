/* What the command line of symm-perf says. */
#ifndef SYMM_PERF_OPTIONS_H
#define SYMM_PERF_OPTIONS_H

#include <stddef.h>
#include <stdint.h>
#include <symm.h>

#include "types.h"

enum { PERF_MAX_BATCHES = 1000 };

/* Bits of perf_options.forms. */
enum perf_form { PERF_ALL_REDUCE = 1, PERF_WINDOW = 2, PERF_NO_FORM = 4 };

/* Bits of perf_options.modes. */
enum perf_mode { PERF_GRAPH = 1, PERF_EAGER = 2 };

struct perf_options {
  int ranks;
  int gpu;
  int threads; /* ranks are threads of one process */
  size_t min_bytes;
  size_t max_bytes;
  size_t step; /* each size is the last one times this */
  symm_dtype dtypes[16];
  int dtype_count;
  symm_op ops[8];
  int op_count;
  unsigned forms; /* perf_form */
  unsigned modes; /* perf_mode; of GPUs */
  int in_place;
  int dirty;           /* inputs are rewritten before every call */
  int behind_producer; /* on GPUs */
  int not_sole;        /* SYMM_COMM_SOLE is left off */
  /* 1: when it is there, 2: asked for by name. */
  int against_mpi;
  int against_nccl;
  int against_torch;
  int batches;
  double batch_us;       /* a batch lasts at least about this long */
  const char* json_path; /* NULL: no JSON, "-": standard output */
  const char* plot_path;
  uint64_t seed;
  int has_seed;
  int timeout_s; /* a run that makes no progress for so long is ended */
};

/* Exits with a message where an argument is wrong (2), after --help (0). `quiet`: notes about
 * arguments that have no effect on CPU ranks are left out (the workers parse the same arguments
 * again). */
void options_parse(int argc, char** argv, int quiet, struct perf_options* options);

/* Every size from min_bytes to max_bytes that is at least an element, in whole elements: the size
 * after `bytes`, or the first for 0; 0 after the last. */
size_t options_next_size(const struct perf_options* options, size_t bytes, size_t element);

int options_cell_count(const struct perf_options* options);

/* No run gives more rows. */
int options_row_limit(const struct perf_options* options);

#endif
