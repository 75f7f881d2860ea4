/* Inputs that are fresh each time, outputs that are poisoned, and the count of what is wrong. */
#ifndef SYMM_PERF_GPU_GPU_CHECK_H
#define SYMM_PERF_GPU_GPU_CHECK_H

#include "gpu_engine.h"

/* Computes a period of this rank's inputs and of the results, for all engines of a cell, and puts
 * them on the GPU. */
void gpu_check_load(struct gpu_rank* rank, const struct problem* problem);

/* Finds a fault of its own making, or ends the process with a message: a check that finds nothing
 * proves nothing. */
void gpu_check_try(struct gpu_rank* rank);

enum gpu_filling {
  GPU_RANDOM,  /* the input is random */
  GPU_ZEROS,   /* it is zeros, and so are the results of any number of calls in place */
  GPU_PRODUCED /* it is poisoned: the producer writes the random input */
};

/* Fills the buffers of a call; `turn`, the same on every rank, picks the inputs. */
void gpu_check_fill(const struct gpu_engine* engine, enum gpu_filling filling, uint64_t turn);

/* Elements of this rank's output that are wrong after the calls, of its input that have changed
 * where the output is not in its place, and bytes behind the output. Waits for the stream. */
size_t gpu_check_count(const struct gpu_engine* engine, enum gpu_filling filling, uint64_t turn);

#endif
