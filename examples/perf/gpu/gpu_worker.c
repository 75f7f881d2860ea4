#include "gpu_worker.h"

#include <stdlib.h>

#include "../engine.h"
#include "floors.h"
#include "gpu_check.h"
#include "gpu_measure.h"

static void run_cell(struct gpu_rank* rank, int cell, symm_dtype dtype, symm_op op, size_t bytes,
                     FILE* file) {
  struct gpu_engine engines[GPU_MAX_ENGINES];
  struct row rows[GPU_MAX_ROWS];
  const int engine_count =
      gpu_engines_make(rank, dtype, op, bytes, rank->worker->seed + (uint64_t)cell, engines);
  if (file != NULL) {
    fprintf(file, WORKER_CELL "%d %s %s %zu\n", cell, dtype_name(dtype), op_name(op), bytes);
    fflush(file);
  }
  const int row_count = gpu_measure_cell(rank, engines, engine_count, rows);
  for (int i = 0; i < row_count && file != NULL; ++i) {
    rows[i].cell = cell;
    row_write(file, &rows[i]);
  }
}

static void run_cells(struct gpu_rank* rank, FILE* file) {
  const struct perf_options* options = rank->options;
  int cell = 0;
  for (int d = 0; d < options->dtype_count; ++d) {
    const symm_dtype dtype = options->dtypes[d];
    for (int o = 0; o < options->op_count; ++o) {
      size_t bytes = 0;
      while ((bytes = options_next_size(options, bytes, dtype_size(dtype))) != 0) {
        run_cell(rank, cell++, dtype, options->ops[o], bytes, file);
      }
    }
  }
}

void gpu_worker_run(const struct worker* worker) {
  struct gpu_rank* rank = calloc(1, sizeof *rank);
  fail_rank_name(worker->rank);
  if (rank == NULL) {
    fail_rank("out of memory");
  }
  if (worker->keeps_watch) {
    watchdog_feed(worker->options->timeout_s);
  }
  gpu_rank_join(rank, worker);
  FILE* file = worker->rank == 0 ? worker->rows : NULL;
  if (file != NULL) {
    fprintf(file, WORKER_STARTED "-\n");
    fflush(file);
  }
  gpu_check_try(rank);
  gpu_floors(rank, file);
  run_cells(rank, file);
  if (file != NULL) {
    fputs(WORKER_DONE "\n", file);
    fflush(file);
  }
  shared_barrier(&rank->control.shared); /* nobody leaves while others still need him */
  gpu_rank_leave(rank);
  free(rank);
}
