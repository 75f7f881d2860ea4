/* Checks and times one cell: an element type, an operation and a size, by every engine in
 * alternation. */
#ifndef SYMM_PERF_MEASURE_H
#define SYMM_PERF_MEASURE_H

#include "engine.h"
#include "options.h"
#include "row.h"
#include "shared.h"

enum { MEASURE_MAX_ENGINES = 3 };

/* Collective over the ranks. Every rank gets the same rows, one an engine; the caller names the
 * cell in them. */
void measure_cell(const struct perf_options* options, struct shared* shared,
                  const struct engine* engines, int engine_count, uint64_t seed, struct row* rows);

#endif
