#include "graph.h"

void gpu_graph_begin(struct gpu_rank* rank) {
  gpu_check(rank->driver->capture_begin(rank->stream, GPU_CAPTURE_THREAD_LOCAL),
            "cuStreamBeginCapture");
}

void gpu_graph_end(struct gpu_rank* rank, int calls, struct gpu_graph* graph) {
  void* captured = NULL;
  gpu_check(rank->driver->capture_end(rank->stream, &captured), "cuStreamEndCapture");
  gpu_check(rank->driver->graph_instantiate(&graph->exec, captured, 0), "cuGraphInstantiate");
  gpu_check(rank->driver->graph_destroy(captured), "cuGraphDestroy");
  gpu_check(rank->driver->graph_upload(graph->exec, rank->stream), "cuGraphUpload");
  graph->calls = calls;
}

void gpu_graph_launch(struct gpu_rank* rank, const struct gpu_graph* graph) {
  gpu_check(rank->driver->graph_launch(graph->exec, rank->stream), "cuGraphLaunch");
}

double gpu_graph_time(struct gpu_rank* rank, const struct gpu_graph* graph) {
  float ms = 0;
  shared_barrier(&rank->control.shared);
  gpu_graph_launch(rank, graph);
  gpu_check(rank->driver->event_record(rank->events[0], rank->stream), "cuEventRecord");
  gpu_graph_launch(rank, graph);
  gpu_check(rank->driver->event_record(rank->events[1], rank->stream), "cuEventRecord");
  gpu_rank_wait(rank);
  gpu_check(rank->driver->event_elapsed(&ms, rank->events[0], rank->events[1]),
            "cuEventElapsedTime");
  return shared_max(&rank->control.shared, (double)ms * 1000 / graph->calls);
}

void gpu_graph_free(struct gpu_rank* rank, struct gpu_graph* graph) {
  if (graph->exec != NULL) {
    gpu_check(rank->driver->graph_exec_destroy(graph->exec), "cuGraphExecDestroy");
    graph->exec = NULL;
  }
}
