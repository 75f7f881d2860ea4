#include "gpu_check.h"

#include <stdlib.h>
#include <string.h>

#include "../engine.h"
#include "../types.h"

static size_t period_of(const struct problem* problem) {
  return problem->count < GPU_TILE_PERIOD ? problem->count : GPU_TILE_PERIOD;
}

void gpu_check_load(struct gpu_rank* rank, const struct problem* problem) {
  const size_t period = period_of(problem);
  const size_t bytes = period * dtype_size(problem->dtype);
  reference_input(problem, rank->control.shared.rank, 0, period, rank->host_tile);
  reference_result(problem, 0, period, rank->host_result_tile);
  gpu_check(rank->driver->copy_to_device(rank->tile, rank->host_tile, bytes), "cuMemcpyHtoD");
  gpu_check(rank->driver->copy_to_device(rank->result_tile, rank->host_result_tile, bytes),
            "cuMemcpyHtoD");
}

static struct gpu_tile tile_of(const struct gpu_engine* engine, gpu_address elements,
                               uint64_t turn) {
  const struct problem* problem = &engine->problem;
  const struct gpu_tile tile = {elements, period_of(problem),
                                /* Knuth's multiplier: turns in a row begin far apart. */
                                (size_t)(turn * 2654435761u % period_of(problem)),
                                (unsigned)dtype_size(problem->dtype)};
  return tile;
}

static struct gpu_tile zeros_of(const struct gpu_engine* engine) {
  const struct gpu_tile tile = {engine->rank->constants, 1, 0,
                                (unsigned)dtype_size(engine->problem.dtype)};
  return tile;
}

static struct gpu_tile guard_of(const struct gpu_engine* engine) {
  const struct gpu_tile tile = {engine->rank->constants + 8, 1, 0, 1};
  return tile;
}

/* What a buffer that is filled so holds. */
static struct gpu_tile filled_of(const struct gpu_engine* engine, enum gpu_filling filling,
                                 gpu_address at, uint64_t turn) {
  return filling == GPU_ZEROS ? zeros_of(engine) : tile_of(engine, at, turn);
}

void gpu_check_fill(const struct gpu_engine* engine, enum gpu_filling filling, uint64_t turn) {
  struct gpu_rank* rank = engine->rank;
  const size_t count = engine->problem.count;
  const struct gpu_tile input = filled_of(engine, filling, rank->tile, turn);
  const struct gpu_tile result = filled_of(engine, filling, rank->result_tile, turn);
  const struct gpu_tile guard = guard_of(engine);
  gpu_expand(&rank->kernels, rank->stream, engine->input, count, &input,
             filling == GPU_PRODUCED ? 0xff : 0);
  if (filling == GPU_PRODUCED) {
    gpu_expand(&rank->kernels, rank->stream, rank->source, count, &input, 0);
  }
  if (engine->output != engine->input) {
    gpu_expand(&rank->kernels, rank->stream, engine->output, count, &result, 0xff);
  }
  gpu_expand(&rank->kernels, rank->stream, engine->output + engine->bytes, GPU_GUARD_BYTES, &guard,
             0);
}

/* What the GPU found different bit for bit, looked at again for an engine that may round its own
 * way. */
static size_t count_on_host(const struct gpu_engine* engine, const struct gpu_tile* result) {
  const struct gpu_rank* rank = engine->rank;
  const size_t element = result->element_bytes;
  const size_t total = engine->problem.count;
  unsigned char* output = malloc(engine->bytes);
  size_t wrong = 0;
  if (output == NULL) {
    fail_rank("out of memory: %zu bytes for a check", engine->bytes);
  }
  gpu_check(rank->driver->copy_to_host(output, engine->output, engine->bytes), "cuMemcpyDtoH");
  for (size_t first = 0; first < total;) {
    const size_t place = (first + result->shift) % result->period;
    size_t count = result->period - place;
    count = count < total - first ? count : total - first;
    wrong += reference_compare(engine->problem.dtype, output + first * element,
                               rank->host_result_tile + place * element, count, engine->tolerance);
    first += count;
  }
  free(output);
  return wrong;
}

size_t gpu_check_count(const struct gpu_engine* engine, enum gpu_filling filling, uint64_t turn) {
  struct gpu_rank* rank = engine->rank;
  const size_t count = engine->problem.count;
  const struct gpu_tile input = filled_of(engine, filling, rank->tile, turn);
  const struct gpu_tile result = filled_of(engine, filling, rank->result_tile, turn);
  const struct gpu_tile guard = guard_of(engine);
  uint64_t found[2];
  gpu_check(rank->driver->fill(rank->counters, 0, sizeof found, rank->stream), "cuMemsetD8Async");
  gpu_compare(&rank->kernels, rank->stream, engine->output, count, &result, rank->counters);
  gpu_compare(&rank->kernels, rank->stream, engine->output + engine->bytes, GPU_GUARD_BYTES, &guard,
              rank->counters + sizeof found[0]);
  if (engine->output != engine->input) {
    gpu_compare(&rank->kernels, rank->stream, engine->input, count, &input,
                rank->counters + sizeof found[0]);
  }
  gpu_rank_wait(rank);
  gpu_check(rank->driver->copy_to_host(found, rank->counters, sizeof found), "cuMemcpyDtoH");
  if (found[0] != 0 && engine->tolerance > 0 && filling != GPU_ZEROS) {
    found[0] = count_on_host(engine, &result);
  }
  return (size_t)(found[0] + found[1]);
}

static void expect_found(const struct gpu_engine* engine, uint64_t turn, size_t expected,
                         const char* fault) {
  const size_t found = gpu_check_count(engine, GPU_RANDOM, turn);
  if (found != expected) {
    fail_rank("the check of results is broken: it finds %zu wrong elements after %s, not %zu",
              found, fault, expected);
  }
}

void gpu_check_try(struct gpu_rank* rank) {
  struct gpu_engine engine;
  unsigned char byte;
  memset(&engine, 0, sizeof engine);
  engine.rank = rank;
  engine.input = engine.output = rank->input;
  engine.problem.dtype = SYMM_UINT8;
  engine.problem.op = SYMM_MAX;
  engine.problem.ranks = 1; /* of which the result is the input */
  engine.problem.count = rank->options->max_bytes < 1000 ? rank->options->max_bytes : 1000;
  engine.bytes = engine.problem.count;
  gpu_check_load(rank, &engine.problem);
  gpu_expand(&rank->kernels, rank->stream, rank->tile, engine.problem.count,
             &(struct gpu_tile){rank->result_tile, engine.problem.count, 0, 1}, 0);
  gpu_check_fill(&engine, GPU_RANDOM, 1);
  expect_found(&engine, 1, 0, "no fault");
  /* The last byte, and the first behind it. */
  for (size_t i = 0; i < 2; ++i) {
    const gpu_address place = engine.output + engine.bytes - 1 + i;
    gpu_check(rank->driver->copy_to_host(&byte, place, 1), "cuMemcpyDtoH");
    byte ^= 1;
    gpu_check(rank->driver->copy_to_device(place, &byte, 1), "cuMemcpyHtoD");
    expect_found(&engine, 1, i + 1, i == 0 ? "one in a result" : "one behind it");
  }
}
