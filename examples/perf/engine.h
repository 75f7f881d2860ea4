/* What is timed: symm's two forms and MPI, called the same way. */
#ifndef SYMM_PERF_ENGINE_H
#define SYMM_PERF_ENGINE_H

#include <stddef.h>
#include <symm.h>

#include "mpi_plugin.h"
#include "reference.h"

enum engine_kind { ENGINE_ALL_REDUCE, ENGINE_WINDOW, ENGINE_MPI };

struct engine {
  enum engine_kind kind;
  symm_comm* comm;
  symm_window* window;          /* ENGINE_WINDOW: its input */
  const struct mpi_plugin* mpi; /* ENGINE_MPI */
  void* input;
  void* output;           /* input: in place */
  struct problem problem; /* its seed and period are those of the tile */
  size_t bytes;
  double tolerance; /* 0: the result is known bit for bit */
  /* --dirty: what the input is rewritten with before each call; it repeats. NULL: nothing. */
  const void* tile;
  size_t tile_bytes;
};

/* Ends the process with a message if the call fails. */
void engine_call(const struct engine* engine);

/* Rewrites the input from the tile. */
void engine_rewrite(const struct engine* engine);

const char* engine_name(const struct engine* engine);
const char* engine_form(const struct engine* engine);

/* The algorithm that symm would take, "-" where the engine does not say. */
void engine_algorithm(const struct engine* engine, char* buffer, size_t size);

/* The same of a communicator, or of a window unless it is NULL. */
void engine_plan(symm_comm* comm, symm_window* window, const struct problem* problem, char* buffer,
                 size_t size);

/* Ends the process: "symm-perf: rank 3: text". Peers learn of it from the launcher, or by symm
 * itself. */
void fail_rank(const char* format, ...);

/* fail_rank with symm_last_error() unless status is SYMM_OK. */
void check(symm_status status);

/* Says who fails in fail_rank; of the calling thread. */
void fail_rank_name(int rank);

#endif
