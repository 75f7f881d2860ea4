/* A rank's NCCL communicator, and its buffers in NCCL's symmetric windows. */
#ifndef SYMM_PERF_GPU_GPU_NCCL_H
#define SYMM_PERF_GPU_GPU_NCCL_H

#include "gpu_rank.h"

/* Collective. Leaves rank->nccl NULL where NCCL is not to be timed. */
void gpu_nccl_join(struct gpu_rank* rank);
void gpu_nccl_leave(struct gpu_rank* rank);

/* Ends the process with a message unless `result` is success. */
void gpu_nccl_check(const struct gpu_rank* rank, int result, const char* what);

#endif
