#define _POSIX_C_SOURCE 200809L

#include "worker.h"

#include <dlfcn.h>
#include <float.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "control.h"
#include "engine.h"
#include "gpu/gpu_worker.h"
#include "measure.h"

enum {
  guard_room = 64,  /* after every buffer, see measure.c */
  tile_bytes = 4032 /* not a power of two, so that no piece of a result fits in another's place */
};

/* Everything a rank holds. */
struct rank_state {
  const struct worker* worker;
  const struct perf_options* options;
  struct control control;
  symm_window* window; /* the window form's input */
  void* window_data;
  void* input;
  void* output;
  void* mpi_input; /* where MPI has to take another element type */
  void* tile;
  void* mpi_tile;
  const struct mpi_plugin* mpi;
};

static const struct mpi_plugin* load_mpi(const char* path, int* rank, int ranks) {
  /* Open MPI's own plug-ins look for its symbols globally. */
  void* object = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (object == NULL) {
    fail_rank("the MPI plug-in does not load: %s", dlerror());
  }
  const struct mpi_plugin* (*get)(void);
  void* symbol = dlsym(object, "symm_perf_mpi_plugin");
  memcpy(&get, &symbol, sizeof get); /* ISO C has no conversion from object to function pointers */
  if (get == NULL || get()->interface_version != MPI_PLUGIN_VERSION) {
    fail_rank("%s is no MPI plug-in of this version of symm-perf", path);
  }
  const struct mpi_plugin* mpi = get();
  const int error = mpi->init();
  if (error != 0) {
    fail_rank("MPI_Init failed with MPI's error %d", error);
  }
  *rank = mpi->rank();
  fail_rank_name(*rank);
  if (mpi->size() != ranks) {
    fail_rank("MPI started %d ranks, not %d", mpi->size(), ranks);
  }
  return mpi;
}

/* All pages are there before anything is timed. */
static void* allocate(size_t bytes) {
  void* memory = NULL;
  if (posix_memalign(&memory, 64, bytes + guard_room) != 0) {
    fail_rank("out of memory: %zu bytes; lower --max or --ranks", bytes);
  }
  memset(memory, 0, bytes + guard_room);
  return memory;
}

static int needs_mpi_input(const struct rank_state* state) {
  for (int i = 0; i < state->options->dtype_count; ++i) {
    if (state->mpi != NULL && !state->mpi->has_dtype(state->options->dtypes[i])) {
      return 1;
    }
  }
  return 0;
}

static void allocate_buffers(struct rank_state* state) {
  const size_t bytes = state->options->max_bytes;
  if ((state->options->forms & PERF_ALL_REDUCE) != 0 || state->mpi != NULL) {
    state->input = allocate(bytes);
  }
  if (!state->options->in_place) {
    state->output = allocate(bytes);
  }
  if (needs_mpi_input(state)) {
    state->mpi_input = allocate(bytes);
  }
  if (state->options->dirty) {
    state->tile = allocate(tile_bytes);
    state->mpi_tile = allocate(tile_bytes);
  }
}

static void join(struct rank_state* state, int rank) {
  const struct perf_options* options = state->options;
  /* The largest part of a reference: an element more than a share of the bytes. */
  control_join(&state->control, state->worker, rank,
               options->max_bytes / (size_t)options->ranks + 64);
  if ((options->forms & PERF_WINDOW) != 0) {
    check(symm_window_alloc(state->control.comm, options->max_bytes + guard_room, NULL,
                            &state->window));
    check(symm_window_data(state->window, rank, &state->window_data));
  }
}

/* ---- Engines of a cell ---- */

static void set_tile(struct rank_state* state, struct engine* engine, void* tile) {
  if (tile == NULL) {
    return;
  }
  const size_t elements = tile_bytes / dtype_size(engine->problem.dtype);
  engine->problem.period = elements;
  reference_input(&engine->problem, state->control.shared.rank, 0, elements, tile);
  engine->tile = tile;
  engine->tile_bytes = tile_bytes;
}

/* symm's forms share inputs of one dtype; MPI takes float32 of the same bytes where it lacks a
 * dtype. */
static int make_engines(struct rank_state* state, symm_dtype dtype, symm_op op, size_t bytes,
                        uint64_t seed, struct engine* engines) {
  const struct perf_options* options = state->options;
  struct engine base;
  memset(&base, 0, sizeof base);
  base.comm = state->control.comm;
  base.bytes = bytes;
  base.problem.dtype = dtype;
  base.problem.op = op;
  base.problem.count = bytes / dtype_size(dtype);
  base.problem.ranks = options->ranks;
  base.problem.seed = seed;
  int count = 0;
  if ((options->forms & PERF_ALL_REDUCE) != 0) {
    struct engine* engine = &engines[count++];
    *engine = base;
    engine->kind = ENGINE_ALL_REDUCE;
    engine->input = state->input;
    set_tile(state, engine, state->tile);
  }
  if ((options->forms & PERF_WINDOW) != 0) {
    struct engine* engine = &engines[count++];
    *engine = base;
    engine->kind = ENGINE_WINDOW;
    engine->window = state->window;
    engine->input = state->window_data;
    set_tile(state, engine, state->tile);
  }
  if (state->mpi != NULL) {
    struct engine* engine = &engines[count];
    const int substitute = !state->mpi->has_dtype(dtype);
    *engine = base;
    engine->kind = ENGINE_MPI;
    engine->mpi = state->mpi;
    engine->input = substitute ? state->mpi_input : state->input;
    engine->problem.dtype = substitute ? SYMM_FLOAT32 : dtype;
    engine->problem.op = op == SYMM_AVG ? SYMM_SUM : op; /* MPI has no average */
    engine->problem.count = bytes / dtype_size(engine->problem.dtype);
    /* MPI leaves overflow open; Open MPI's vector code saturates 8-bit sums. */
    engine->problem.tame = 1;
    set_tile(state, engine, state->mpi_tile);
    /* MPI may add in any order: each addition of |x| < 2 errs by half an epsilon of the sum. */
    const double epsilon = engine->problem.dtype == SYMM_FLOAT32   ? FLT_EPSILON
                           : engine->problem.dtype == SYMM_FLOAT64 ? DBL_EPSILON
                                                                   : 0;
    engine->tolerance = 2.0 * options->ranks * options->ranks * epsilon;
    const int fits =
        bytes % dtype_size(engine->problem.dtype) == 0 && engine->problem.count <= INT_MAX;
    count += fits;
  }
  for (int i = 0; i < count; ++i) {
    engines[i].output = options->in_place ? engines[i].input : state->output;
  }
  return count;
}

static void run_cells(struct rank_state* state) {
  const struct perf_options* options = state->options;
  FILE* rows = state->control.shared.rank == 0 ? state->worker->rows : NULL;
  int cell = 0;
  for (int d = 0; d < options->dtype_count; ++d) {
    const symm_dtype dtype = options->dtypes[d];
    for (int o = 0; o < options->op_count; ++o) {
      const symm_op op = options->ops[o];
      size_t bytes = 0;
      while ((bytes = options_next_size(options, bytes, dtype_size(dtype))) != 0) {
        struct engine engines[MEASURE_MAX_ENGINES];
        struct row results[MEASURE_MAX_ENGINES];
        /* Far enough apart for the seeds that measure_cell derives. */
        const uint64_t seed = state->worker->seed + 16 * (uint64_t)cell;
        const int count = make_engines(state, dtype, op, bytes, seed, engines);
        if (rows != NULL) {
          fprintf(rows, WORKER_CELL "%d %s %s %zu\n", cell, dtype_name(dtype), op_name(op), bytes);
          fflush(rows);
        }
        measure_cell(options, &state->control.shared, engines, count, seed, results);
        for (int i = 0; i < count && rows != NULL; ++i) {
          results[i].cell = cell;
          row_write(rows, &results[i]);
        }
        ++cell;
      }
    }
  }
  if (rows != NULL) {
    fputs(WORKER_DONE "\n", rows);
    fflush(rows);
  }
}

void worker_run(const struct worker* worker) {
  if (worker->options->gpu) {
    gpu_worker_run(worker);
    return;
  }
  struct rank_state* state = calloc(1, sizeof *state);
  int rank = worker->rank;
  fail_rank_name(rank);
  if (state == NULL) {
    fail_rank("out of memory");
  }
  state->worker = worker;
  state->options = worker->options;
  if (worker->keeps_watch) {
    watchdog_feed(worker->options->timeout_s);
  }
  if (worker->plugin != NULL) {
    state->mpi = load_mpi(worker->plugin, &rank, worker->options->ranks);
  }
  join(state, rank);
  allocate_buffers(state);
  shared_barrier(&state->control.shared);
  if (rank == 0) {
    char library[128] = "-";
    if (state->mpi != NULL) {
      state->mpi->library(library, sizeof library);
    }
    fprintf(worker->rows, WORKER_STARTED "%s\n", library);
    fflush(worker->rows);
  }
  run_cells(state);

  free(state->input);
  free(state->output);
  free(state->mpi_input);
  free(state->tile);
  free(state->mpi_tile);
  if (state->window != NULL) {
    symm_window_free(state->window);
  }
  control_leave(&state->control);
  if (state->mpi != NULL) {
    state->mpi->finalize();
  }
  free(state);
}
