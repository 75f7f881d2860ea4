#include "measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "machine.h"
#include "samples.h"

static const double same_placement = 1.5; /* ratio of ping-pongs up to which no CPU has moved */

/* ---- Checks ---- */

static size_t part_count(const struct engine* engine, const struct shared* shared) {
  const size_t size = (size_t)shared->size;
  return (engine->problem.count + size - 1) / size;
}

/* Every rank computes its part of the result; together they are all of it. */
static void build_reference(const struct engine* engine, struct shared* shared) {
  const size_t part = part_count(engine, shared);
  const size_t first = part * (size_t)shared->rank;
  if (first < engine->problem.count) {
    const size_t left = engine->problem.count - first;
    reference_result(&engine->problem, first, left < part ? left : part,
                     shared_part(shared, shared->rank));
  }
  shared_barrier(shared);
}

typedef void visit_part(const struct engine* engine, unsigned char* output,
                        const unsigned char* reference, size_t count, size_t* wrong);

static size_t visit_parts(const struct engine* engine, struct shared* shared, visit_part* visit) {
  const size_t part = part_count(engine, shared);
  const size_t element = dtype_size(engine->problem.dtype);
  size_t wrong = 0;
  for (int rank = 0; rank < shared->size; ++rank) {
    const size_t first = part * (size_t)rank;
    if (first < engine->problem.count) {
      const size_t left = engine->problem.count - first;
      visit(engine, (unsigned char*)engine->output + first * element, shared_part(shared, rank),
            left < part ? left : part, &wrong);
    }
  }
  return wrong;
}

/* The complement of the result: an element that nobody writes cannot be right by chance. */
static void poison_part(const struct engine* engine, unsigned char* output,
                        const unsigned char* reference, size_t count, size_t* wrong) {
  (void)wrong;
  for (size_t i = 0; i < count * dtype_size(engine->problem.dtype); ++i) {
    output[i] = (unsigned char)~reference[i];
  }
}

static void compare_part(const struct engine* engine, unsigned char* output,
                         const unsigned char* reference, size_t count, size_t* wrong) {
  *wrong += reference_compare(engine->problem.dtype, output, reference, count, engine->tolerance);
}

static void fill_input(const struct engine* engine, const struct shared* shared) {
  reference_input(&engine->problem, shared->rank, 0, engine->problem.count, engine->input);
}

/* Elements of the input that are not what fill_input put there. */
static size_t changed_input(const struct engine* engine, const struct shared* shared) {
  enum { block = 1024 };
  uint64_t expected[block];
  const size_t element = dtype_size(engine->problem.dtype);
  size_t changed = 0;
  for (size_t first = 0; first < engine->problem.count; first += block) {
    const size_t left = engine->problem.count - first;
    const size_t count = left < block ? left : block;
    reference_input(&engine->problem, shared->rank, first, count, expected);
    changed += reference_compare(engine->problem.dtype,
                                 (const unsigned char*)engine->input + first * element, expected,
                                 count, 0);
  }
  return changed;
}

enum { guard_bytes = 64 }; /* the worker leaves as much after every buffer */

static void set_guard(const struct engine* engine) {
  memset((unsigned char*)engine->output + engine->bytes, 0xa5, guard_bytes);
}

/* 1 if something was written past the end. */
static size_t broken_guard(const struct engine* engine) {
  const unsigned char* guard = (const unsigned char*)engine->output + engine->bytes;
  for (int i = 0; i < guard_bytes; ++i) {
    if (guard[i] != 0xa5) {
      return 1;
    }
  }
  return 0;
}

/* Runs `calls` calls on fresh inputs of `seed` and counts wrong elements on this rank. */
static size_t check_calls(const struct engine* original, struct shared* shared, uint64_t seed,
                          size_t period, int calls) {
  struct engine engine = *original;
  engine.problem.seed = seed;
  engine.problem.period = period;
  const int in_place = engine.input == engine.output;
  build_reference(&engine, shared);
  fill_input(&engine, shared);
  if (!in_place) {
    visit_parts(&engine, shared, poison_part);
  }
  set_guard(&engine);
  for (int i = 0; i < calls; ++i) {
    if (i > 0 && engine.tile != NULL) {
      engine_rewrite(&engine);
    }
    engine_call(&engine);
  }
  size_t wrong = visit_parts(&engine, shared, compare_part) + broken_guard(&engine);
  if (!in_place) {
    wrong += changed_input(&engine, shared);
  }
  shared_barrier(shared); /* the reference may be overwritten from here on */
  return wrong;
}

/* ---- Times ---- */

/* us a call, the slowest rank's. */
static double time_batch(const struct engine* engine, struct shared* shared, int calls) {
  engine_call(engine); /* the last engine's data makes room for this one's */
  shared_barrier(shared);
  const double begin = now_us();
  if (engine->tile == NULL) {
    for (int i = 0; i < calls; ++i) {
      engine_call(engine);
    }
  } else {
    for (int i = 0; i < calls; ++i) {
      engine_rewrite(engine);
      engine_call(engine);
    }
  }
  return shared_max(shared, (now_us() - begin) / calls);
}

static double time_rewriting(const struct engine* engine, struct shared* shared, int calls) {
  shared_barrier(shared);
  const double begin = now_us();
  for (int i = 0; i < calls; ++i) {
    engine_rewrite(engine);
  }
  return shared_max(shared, (now_us() - begin) / calls);
}

/* Calls that fill a batch of about `batch_us`; the same on every rank, since the slowest rank's
 * times are. */
static int calibrate(const struct engine* engine, struct shared* shared, double batch_us) {
  enum { most_calls = 1000000 };
  int calls = 1;
  double each = time_batch(engine, shared, calls);
  while (each * calls < batch_us / 4 && calls < most_calls / 4) {
    calls *= 4;
    each = time_batch(engine, shared, calls);
  }
  const int least = each < 5000 ? 3 : 1;
  const double wanted = batch_us / each + 1;
  calls = wanted > most_calls ? most_calls : (int)wanted;
  return calls < least ? least : calls;
}

struct samples {
  double of_engine[MEASURE_MAX_ENGINES][PERF_MAX_BATCHES];
  double ping_pong[PERF_MAX_BATCHES];
  int redone;
  int disturbed;
};

static int moved(double before, double after) {
  return before > after * same_placement || after > before * same_placement;
}

/* Rounds of one batch an engine, with a ping-pong before and after. A round in which that changed
 * (a virtual machine's CPU has moved), or in which another process had a rank's CPU, is done again,
 * at most twice as many times as there are rounds. Ranks that outnumber CPUs take turns: there
 * nothing is to be seen. */
static void run_rounds(const struct perf_options* options, struct shared* shared,
                       const struct engine* engines, int engine_count, const int* calls,
                       struct samples* samples) {
  samples->redone = 0;
  samples->disturbed = 0;
  for (int round = 0; round < options->batches;) {
    watchdog_feed(shared->watch_s);
    const long preemptions = machine_preemptions();
    const double before = shared_ping_pong(shared);
    for (int i = 0; i < engine_count; ++i) {
      samples->of_engine[i][round] = time_batch(&engines[i], shared, calls[i]);
    }
    const double after = shared_ping_pong(shared);
    samples->ping_pong[round] = (before + after) / 2;
    const uint64_t lost = shared_sum(shared, (uint64_t)(machine_preemptions() - preemptions));
    const int disturbed = !shared->crowded && (lost > 0 || moved(before, after));
    if (disturbed && samples->redone < 2 * options->batches) {
      ++samples->redone;
    } else {
      samples->disturbed += disturbed;
      ++round;
    }
  }
}

static double measure_rewriting(const struct engine* engine, struct shared* shared, int calls) {
  double samples[5];
  enum { count = sizeof samples / sizeof samples[0] };
  for (int i = 0; i < count; ++i) {
    samples[i] = time_rewriting(engine, shared, calls);
  }
  return samples_median(samples, count);
}

static void fill_row(const struct perf_options* options, const struct engine* engine,
                     double* samples, struct row* row) {
  snprintf(row->engine, sizeof row->engine, "%s", engine_name(engine));
  snprintf(row->form, sizeof row->form, "%s", engine_form(engine));
  snprintf(row->mode, sizeof row->mode, "cpu");
  snprintf(row->dtype, sizeof row->dtype, "%s", dtype_name(engine->problem.dtype));
  snprintf(row->op, sizeof row->op, "%s", op_name(engine->problem.op));
  engine_algorithm(engine, row->algorithm, sizeof row->algorithm);
  row->ranks = engine->problem.ranks;
  row->bytes = engine->bytes;
  row->in_place = engine->input == engine->output;
  row->dirty = options->dirty;
  row->batches = options->batches;
  row->median_us = samples_median(samples, (size_t)options->batches);
  row->min_us = samples_min(samples, (size_t)options->batches);
  row->p99_us = samples_p99(samples, (size_t)options->batches);
}

void measure_cell(const struct perf_options* options, struct shared* shared,
                  const struct engine* engines, int engine_count, uint64_t seed, struct row* rows) {
  struct samples* samples = malloc(sizeof *samples);
  int calls[MEASURE_MAX_ENGINES];
  size_t wrong[MEASURE_MAX_ENGINES];
  if (samples == NULL) {
    fail_rank("out of memory");
  }
  /* More ranks than CPUs take turns; short batches would time the scheduler's. */
  const double batch_us = options->batch_us * (shared->crowded ? 10 : 1);
  memset(rows, 0, (size_t)engine_count * sizeof *rows);

  for (int i = 0; i < engine_count; ++i) {
    watchdog_feed(shared->watch_s);
    wrong[i] = check_calls(&engines[i], shared, seed, 0, 1);
  }
  /* Engines may share a buffer, then the last one's values stay: they do not matter for time. */
  for (int i = 0; i < engine_count; ++i) {
    struct engine timed = engines[i];
    timed.problem.seed = seed + 1;
    if (timed.input != timed.output) {
      fill_input(&timed, shared);
    } else {
      /* Each call takes the last one's result: all but zeros would grow to infinities and NaN. */
      memset(timed.input, 0, timed.bytes);
    }
    watchdog_feed(shared->watch_s);
    calls[i] = calibrate(&engines[i], shared, batch_us);
  }
  run_rounds(options, shared, engines, engine_count, calls, samples);
  for (int i = 0; i < engine_count; ++i) {
    const struct engine* engine = &engines[i];
    watchdog_feed(shared->watch_s);
    if (engine->tile != NULL) {
      rows[i].rewrite_us = measure_rewriting(engine, shared, calls[i]);
    }
    /* A batch like the timed ones, checked. In place each call takes the last one's result, unless
     * the input is rewritten. */
    if (engine->tile != NULL) {
      wrong[i] +=
          check_calls(engine, shared, engine->problem.seed, engine->problem.period, calls[i]);
    } else if (engine->input != engine->output) {
      wrong[i] += check_calls(engine, shared, seed + 2, 0, calls[i]);
    }
    wrong[i] += check_calls(engine, shared, seed + 3, 0, 1);
  }

  const double ping_pong_ns = samples_median(samples->ping_pong, (size_t)options->batches);
  for (int i = 0; i < engine_count; ++i) {
    fill_row(options, &engines[i], samples->of_engine[i], &rows[i]);
    rows[i].calls = calls[i];
    rows[i].redone = samples->redone;
    rows[i].disturbed = samples->disturbed;
    rows[i].ping_pong_ns = ping_pong_ns;
    rows[i].wrong = shared_sum(shared, wrong[i]);
  }
  free(samples);
}
