#include "gpu_engine.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

#include "../engine.h"
#include "../types.h"
#include "gpu_nccl.h"

static void* pointer(gpu_address address) { return (void*)(uintptr_t)address; }

/* The distance from 1 to the next number. */
static double epsilon_of(symm_dtype dtype) {
  switch (dtype) {
    case SYMM_FLOAT8_E4M3:
      return 1.0 / 8;
    case SYMM_FLOAT8_E5M2:
      return 1.0 / 4;
    case SYMM_FLOAT16:
      return 1.0 / 1024;
    case SYMM_BFLOAT16:
      return 1.0 / 128;
    case SYMM_FLOAT32:
      return FLT_EPSILON;
    case SYMM_FLOAT64:
      return DBL_EPSILON;
    default:
      return 0;
  }
}

static void add(struct gpu_engine* engines, int* count, const struct gpu_engine* base,
                enum gpu_engine_kind kind, gpu_address input, gpu_address output) {
  struct gpu_engine* engine = &engines[(*count)++];
  const int others = kind == GPU_NCCL || kind == GPU_NCCL_SYMMETRIC;
  const int ranks = base->problem.ranks;
  *engine = *base;
  engine->kind = kind;
  engine->input = input;
  engine->output = base->rank->options->in_place ? input : output;
  /* NCCL adds in its own order and rounds in between: each addition of |x| < 2 errs by half an
   * epsilon of the sum. */
  engine->tolerance = others ? 2.0 * ranks * ranks * epsilon_of(base->problem.dtype) : 0;
}

int gpu_engines_make(struct gpu_rank* rank, symm_dtype dtype, symm_op op, size_t bytes,
                     uint64_t seed, struct gpu_engine* engines) {
  const unsigned forms = rank->options->forms;
  const int is_float8 = dtype == SYMM_FLOAT8_E4M3 || dtype == SYMM_FLOAT8_E5M2;
  struct gpu_engine base;
  int count = 0;
  memset(&base, 0, sizeof base);
  base.rank = rank;
  base.bytes = bytes;
  base.problem.dtype = dtype;
  base.problem.op = op;
  base.problem.count = bytes / dtype_size(dtype);
  base.problem.ranks = rank->options->ranks;
  base.problem.seed = seed;
  if ((forms & PERF_ALL_REDUCE) != 0) {
    add(engines, &count, &base, GPU_ALL_REDUCE, rank->input, rank->output);
  }
  if ((forms & PERF_WINDOW) != 0) {
    add(engines, &count, &base, GPU_WINDOW, rank->window_data, rank->output);
  }
  if (rank->nccl != NULL && !(is_float8 && rank->nccl_version < NCCL_FIRST_FLOAT8)) {
    add(engines, &count, &base, GPU_NCCL, rank->input, rank->output);
    if (rank->nccl_input != NULL) {
      add(engines, &count, &base, GPU_NCCL_SYMMETRIC, (gpu_address)(uintptr_t)rank->nccl_input,
          (gpu_address)(uintptr_t)rank->nccl_output);
    }
  }
  return count;
}

void gpu_engine_call(const struct gpu_engine* engine) {
  const struct gpu_rank* rank = engine->rank;
  const struct problem* problem = &engine->problem;
  switch (engine->kind) {
    case GPU_ALL_REDUCE:
      check(symm_all_reduce(rank->comm, pointer(engine->input), pointer(engine->output),
                            problem->count, problem->dtype, problem->op, rank->stream));
      break;
    case GPU_WINDOW:
      check(symm_window_all_reduce(rank->window, 0, pointer(engine->output), problem->count,
                                   problem->dtype, problem->op, rank->stream));
      break;
    default:
      gpu_nccl_check(rank,
                     rank->nccl->all_reduce(pointer(engine->input), pointer(engine->output),
                                            problem->count, (int)problem->dtype, (int)problem->op,
                                            rank->nccl_comm, rank->stream),
                     "ncclAllReduce");
  }
}

const char* gpu_engine_name(const struct gpu_engine* engine) {
  switch (engine->kind) {
    case GPU_NCCL:
      return "nccl";
    case GPU_NCCL_SYMMETRIC:
      return "nccl_symmetric";
    default:
      return "symm";
  }
}

const char* gpu_engine_form(const struct gpu_engine* engine) {
  return engine->kind == GPU_WINDOW ? "window" : "all_reduce";
}

void gpu_engine_algorithm(const struct gpu_engine* engine, char* buffer, size_t size) {
  const struct gpu_rank* rank = engine->rank;
  snprintf(buffer, size, "-");
  if (engine->kind == GPU_ALL_REDUCE || engine->kind == GPU_WINDOW) {
    symm_window* window = engine->kind == GPU_WINDOW ? rank->window : NULL;
    engine_plan(rank->comm, window, &engine->problem, buffer, size);
  }
}
