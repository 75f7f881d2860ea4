/* Checks and times one cell on GPUs: an element type, an operation and a size, by every engine in
 * every mode, in alternation. */
#ifndef SYMM_PERF_GPU_GPU_MEASURE_H
#define SYMM_PERF_GPU_GPU_MEASURE_H

#include "../row.h"
#include "gpu_engine.h"

/* Graphs are one row an engine, eager calls two: "eager", the whole, and "host". */
enum { GPU_MAX_ROWS = 3 * GPU_MAX_ENGINES };

/* Collective. Every rank gets the same rows; the caller names the cell in them. Returns how many.
 */
int gpu_measure_cell(struct gpu_rank* rank, const struct gpu_engine* engines, int engine_count,
                     struct row* rows);

#endif
