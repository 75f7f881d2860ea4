/* The life of a rank on a GPU; worker_run's other half. */
#ifndef SYMM_PERF_GPU_GPU_WORKER_H
#define SYMM_PERF_GPU_GPU_WORKER_H

#include "../worker.h"

void gpu_worker_run(const struct worker* worker);

#endif
