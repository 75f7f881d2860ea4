#include "gpu_check.h"

#include <stdlib.h>

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

void gpu_check_fill(const struct gpu_engine* engine, enum gpu_filling filling, uint64_t turn) {
  struct gpu_rank* rank = engine->rank;
  const size_t count = engine->problem.count;
  const struct gpu_tile input = tile_of(engine, rank->tile, turn);
  const struct gpu_tile result = tile_of(engine, rank->result_tile, turn);
  const struct gpu_tile zeros = zeros_of(engine);
  const struct gpu_tile guard = guard_of(engine);
  gpu_expand(&rank->kernels, rank->stream, engine->input, count,
             filling == GPU_ZEROS ? &zeros : &input, filling == GPU_PRODUCED ? 0xff : 0);
  if (filling == GPU_PRODUCED) {
    gpu_expand(&rank->kernels, rank->stream, rank->source, count, &input, 0);
  }
  if (engine->output != engine->input) {
    gpu_expand(&rank->kernels, rank->stream, engine->output, count,
               filling == GPU_ZEROS ? &zeros : &result, 0xff);
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
  const struct gpu_tile input = tile_of(engine, rank->tile, turn);
  const struct gpu_tile result = tile_of(engine, rank->result_tile, turn);
  const struct gpu_tile zeros = zeros_of(engine);
  const struct gpu_tile guard = guard_of(engine);
  uint64_t found[2];
  gpu_check(rank->driver->fill(rank->counters, 0, sizeof found, rank->stream), "cuMemsetD8Async");
  gpu_compare(&rank->kernels, rank->stream, engine->output, count,
              filling == GPU_ZEROS ? &zeros : &result, rank->counters);
  gpu_compare(&rank->kernels, rank->stream, engine->output + engine->bytes, GPU_GUARD_BYTES, &guard,
              rank->counters + sizeof found[0]);
  if (engine->output != engine->input) {
    gpu_compare(&rank->kernels, rank->stream, engine->input, count,
                filling == GPU_ZEROS ? &zeros : &input, rank->counters + sizeof found[0]);
  }
  gpu_rank_wait(rank);
  gpu_check(rank->driver->copy_to_host(found, rank->counters, sizeof found), "cuMemcpyDtoH");
  if (found[0] != 0 && engine->tolerance > 0 && filling != GPU_ZEROS) {
    found[0] = count_on_host(engine, &result);
  }
  return (size_t)(found[0] + found[1]);
}
