#include "gpu_measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../engine.h"
#include "../samples.h"
#include "../types.h"
#include "gpu_check.h"
#include "graph.h"

static const double producer_us = 2.4; /* about 3 with its launch */
enum { warm_rounds = 2 };

/* One engine in one mode. */
struct series {
  const struct gpu_engine* engine;
  int mode; /* enum perf_mode */
  int calls;
  struct gpu_graph graph;
  struct gpu_graph single;   /* one call: in place more of them give nothing that is known */
  struct gpu_graph producer; /* of producers alone */
  double us[PERF_MAX_BATCHES];
  double host_us[PERF_MAX_BATCHES];
  double alone_us[PERF_MAX_BATCHES]; /* of producers, or of launching empty kernels */
  size_t wrong;
};

static int in_place(const struct gpu_engine* engine) { return engine->input == engine->output; }

static enum gpu_filling filling_of(const struct series* series) {
  if (series->mode == PERF_GRAPH && series->engine->rank->options->behind_producer) {
    return GPU_PRODUCED;
  }
  /* In place each call takes the last one's result: all but zeros would grow to infinities. */
  return in_place(series->engine) ? GPU_ZEROS : GPU_RANDOM;
}

static void produce(const struct gpu_engine* engine) {
  const struct gpu_rank* rank = engine->rank;
  gpu_produce(&rank->kernels, rank->stream, engine->input, rank->source, engine->bytes,
              producer_us);
}

static void capture(struct series* series) {
  const struct gpu_engine* engine = series->engine;
  struct gpu_rank* rank = engine->rank;
  const int produced = filling_of(series) == GPU_PRODUCED;
  gpu_graph_begin(rank);
  for (int i = 0; i < series->calls; ++i) {
    if (produced) {
      produce(engine);
    }
    gpu_engine_call(engine);
  }
  gpu_graph_end(rank, series->calls, &series->graph);
  if (in_place(engine)) {
    gpu_graph_begin(rank);
    gpu_engine_call(engine);
    gpu_graph_end(rank, 1, &series->single);
  }
  if (produced) {
    gpu_graph_begin(rank);
    for (int i = 0; i < series->calls; ++i) {
      produce(engine);
    }
    gpu_graph_end(rank, series->calls, &series->producer);
  }
}

/* One call on random inputs, eager or by the graph of one. */
static void check_single(struct series* series, uint64_t turn) {
  const struct gpu_engine* engine = series->engine;
  gpu_check_fill(engine, GPU_RANDOM, turn);
  if (series->single.exec != NULL) {
    gpu_graph_launch(engine->rank, &series->single);
  } else {
    gpu_engine_call(engine);
  }
  series->wrong += gpu_check_count(engine, GPU_RANDOM, turn);
}

/* Host time of launching an empty kernel, as the all-reduces are launched. */
static double time_launches(struct gpu_rank* rank, int calls) {
  const int programmatic = rank->kernels.functions[GPU_DEPENDENT] != NULL;
  shared_barrier(&rank->control.shared);
  const double begin = now_us();
  for (int i = 0; i < calls; ++i) {
    gpu_empty(&rank->kernels, rank->stream, programmatic);
  }
  const double us = (now_us() - begin) / calls;
  gpu_rank_wait(rank);
  return shared_max(&rank->control.shared, us);
}

static void time_eager(struct series* series, double* us, double* host_us) {
  const struct gpu_engine* engine = series->engine;
  struct gpu_rank* rank = engine->rank;
  struct shared* shared = &rank->control.shared;
  gpu_engine_call(engine);
  gpu_rank_wait(rank);
  shared_barrier(shared);
  const double begin = now_us();
  for (int i = 0; i < series->calls; ++i) {
    gpu_engine_call(engine);
  }
  const double issued = now_us();
  gpu_rank_wait(rank);
  const double end = now_us();
  *us = shared_max(shared, (end - begin) / series->calls);
  *host_us = shared_max(shared, (issued - begin) / series->calls);
}

/* Fresh inputs, poisoned outputs, a timed batch, a check. */
static void run_round(struct series* series, int round, uint64_t turn) {
  struct gpu_rank* rank = series->engine->rank;
  const enum gpu_filling filling = filling_of(series);
  gpu_check_fill(series->engine, filling, turn);
  gpu_rank_wait(rank);
  if (series->mode == PERF_GRAPH) {
    series->us[round] = gpu_graph_time(rank, &series->graph);
  } else {
    time_eager(series, &series->us[round], &series->host_us[round]);
    series->alone_us[round] = time_launches(rank, series->calls);
  }
  series->wrong += gpu_check_count(series->engine, filling, turn);
  if (series->producer.exec != NULL) {
    series->alone_us[round] = gpu_graph_time(rank, &series->producer);
    series->us[round] -= series->alone_us[round];
  }
}

static void fill_row(const struct series* series, double* samples, const char* mode,
                     unsigned long long wrong, struct row* row) {
  const struct gpu_engine* engine = series->engine;
  const struct perf_options* options = engine->rank->options;
  const size_t batches = (size_t)options->batches;
  memset(row, 0, sizeof *row);
  snprintf(row->engine, sizeof row->engine, "%s", gpu_engine_name(engine));
  snprintf(row->form, sizeof row->form, "%s", gpu_engine_form(engine));
  snprintf(row->mode, sizeof row->mode, "%s", mode);
  snprintf(row->dtype, sizeof row->dtype, "%s", dtype_name(engine->problem.dtype));
  snprintf(row->op, sizeof row->op, "%s", op_name(engine->problem.op));
  gpu_engine_algorithm(engine, row->algorithm, sizeof row->algorithm);
  row->ranks = engine->problem.ranks;
  row->bytes = engine->bytes;
  row->in_place = in_place(engine);
  row->batches = options->batches;
  row->calls = series->calls;
  row->median_us = samples_median(samples, batches);
  row->min_us = samples_min(samples, batches);
  row->p99_us = samples_p99(samples, batches);
  row->wrong = wrong;
}

static int fill_rows(struct series* series, struct row* rows) {
  struct gpu_rank* rank = series->engine->rank;
  const unsigned long long wrong = shared_sum(&rank->control.shared, series->wrong);
  if (series->mode == PERF_EAGER) {
    fill_row(series, series->us, "eager", wrong, &rows[0]);
    fill_row(series, series->host_us, "host", 0, &rows[1]);
    rows[1].rewrite_us = samples_median(series->alone_us, (size_t)rank->options->batches);
    return 2;
  }
  fill_row(series, series->us, "graph", wrong, &rows[0]);
  if (series->producer.exec != NULL) {
    rows[0].behind_producer = 1;
    rows[0].rewrite_us = samples_median(series->alone_us, (size_t)rank->options->batches);
  }
  return 1;
}

int gpu_measure_cell(struct gpu_rank* rank, const struct gpu_engine* engines, int engine_count,
                     struct row* rows) {
  const struct perf_options* options = rank->options;
  struct series* all = calloc(2 * GPU_MAX_ENGINES, sizeof *all);
  int count = 0, row_count = 0;
  uint64_t turn = 0;
  if (all == NULL) {
    fail_rank("out of memory");
  }
  if (engine_count > 0) {
    gpu_check_load(rank, &engines[0].problem);
  }
  for (int mode = PERF_GRAPH; mode <= PERF_EAGER; mode <<= 1) {
    for (int i = 0; i < engine_count && (options->modes & (unsigned)mode) != 0; ++i) {
      struct series* series = &all[count++];
      series->engine = &engines[i];
      series->mode = mode;
      series->calls = engines[i].bytes < (size_t)8 << 20 ? 100 : 20;
      watchdog_feed(rank->control.shared.watch_s);
      check_single(series, turn++); /* NCCL connects in its first call, which cannot be captured */
      if (mode == PERF_GRAPH) {
        capture(series);
      }
    }
  }
  for (int round = -warm_rounds; round < options->batches; ++round) {
    for (int i = 0; i < count; ++i) {
      watchdog_feed(rank->control.shared.watch_s);
      run_round(&all[i], round < 0 ? 0 : round, turn++);
    }
  }
  for (int i = 0; i < count; ++i) {
    watchdog_feed(rank->control.shared.watch_s);
    check_single(&all[i], turn++);
    row_count += fill_rows(&all[i], &rows[row_count]);
    gpu_graph_free(rank, &all[i].graph);
    gpu_graph_free(rank, &all[i].single);
    gpu_graph_free(rank, &all[i].producer);
  }
  free(all);
  return row_count;
}
