/* What the machine does at best: an empty kernel in a graph and by itself, a flag between GPUs. */
#ifndef SYMM_PERF_GPU_FLOORS_H
#define SYMM_PERF_GPU_FLOORS_H

#include "gpu_rank.h"

/* Collective. Rank 0 writes one line a figure (WORKER_FLOOR) to `file`; others' is NULL. */
void gpu_floors(struct gpu_rank* rank, FILE* file);

#endif
