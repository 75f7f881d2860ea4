/* A captured CUDA graph of calls, and its time. */
#ifndef SYMM_PERF_GPU_GRAPH_H
#define SYMM_PERF_GPU_GRAPH_H

#include "gpu_rank.h"

struct gpu_graph {
  void* exec;
  int calls;
};

/* Between the two, what is enqueued on the rank's stream becomes the graph. */
void gpu_graph_begin(struct gpu_rank* rank);
void gpu_graph_end(struct gpu_rank* rank, int calls, struct gpu_graph* graph);

void gpu_graph_launch(struct gpu_rank* rank, const struct gpu_graph* graph);

/* Collective: us a call by the GPU's clock, the slowest rank's. One launch that is not timed goes
 * before, so that ranks and clock start together and launching is hidden. Waits for the stream. */
double gpu_graph_time(struct gpu_rank* rank, const struct gpu_graph* graph);

void gpu_graph_free(struct gpu_rank* rank, struct gpu_graph* graph);

#endif
