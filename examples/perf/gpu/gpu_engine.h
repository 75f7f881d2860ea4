/* What is timed on GPUs: symm's two forms and NCCL's two, called the same way. */
#ifndef SYMM_PERF_GPU_GPU_ENGINE_H
#define SYMM_PERF_GPU_GPU_ENGINE_H

#include "../reference.h"
#include "gpu_rank.h"

enum gpu_engine_kind { GPU_ALL_REDUCE, GPU_WINDOW, GPU_NCCL, GPU_NCCL_SYMMETRIC };
enum { GPU_MAX_ENGINES = 4 };

struct gpu_engine {
  enum gpu_engine_kind kind;
  struct gpu_rank* rank;
  gpu_address input;
  gpu_address output; /* input: in place */
  struct problem problem;
  size_t bytes;
  double tolerance; /* 0: the result is known bit for bit */
};

/* The engines of a cell. */
int gpu_engines_make(struct gpu_rank* rank, symm_dtype dtype, symm_op op, size_t bytes,
                     uint64_t seed, struct gpu_engine* engines);

/* Enqueues one call on the rank's stream; ends the process with a message if it fails. */
void gpu_engine_call(const struct gpu_engine* engine);

const char* gpu_engine_name(const struct gpu_engine* engine);
const char* gpu_engine_form(const struct gpu_engine* engine);
void gpu_engine_algorithm(const struct gpu_engine* engine, char* buffer, size_t size);

#endif
