#include "floors.h"

#include "../engine.h"
#include "../samples.h"
#include "graph.h"

enum { node_count = 100, repeats = 15, flag_turns = 2010, flag_untimed_turns = 10 };

/* us from one empty kernel of a graph to the next. */
static double time_nodes(struct gpu_rank* rank, int programmatic) {
  double samples[repeats];
  struct gpu_graph graph = {NULL, 0};
  gpu_graph_begin(rank);
  for (int i = 0; i < node_count; ++i) {
    gpu_empty(&rank->kernels, rank->stream, programmatic);
  }
  gpu_graph_end(rank, node_count, &graph);
  for (int i = -1; i < repeats; ++i) {
    samples[i < 0 ? 0 : i] = gpu_graph_time(rank, &graph);
  }
  gpu_graph_free(rank, &graph);
  return samples_median(samples, repeats);
}

/* us that launching an empty kernel takes of the host. */
static double time_launches(struct gpu_rank* rank, int programmatic) {
  double samples[repeats];
  for (int i = -1; i < repeats; ++i) {
    shared_barrier(&rank->control.shared);
    const double begin = now_us();
    for (int launch = 0; launch < node_count; ++launch) {
      gpu_empty(&rank->kernels, rank->stream, programmatic);
    }
    const double us = (now_us() - begin) / node_count;
    gpu_rank_wait(rank);
    samples[i < 0 ? 0 : i] = shared_max(&rank->control.shared, us);
  }
  return samples_median(samples, repeats);
}

/* us of a flag one way between the GPUs of ranks 0 and 1, by a thread of each; 0 where there are no
 * two GPUs, or two that do not reach each other's memory. */
static double time_flag(struct gpu_rank* rank) {
  struct shared* shared = &rank->control.shared;
  double samples[repeats];
  symm_window* window;
  void *mine, *peers;
  if (rank->comm == NULL || rank->gpu_count < 2 || shared->size < 2) {
    return 0;
  }
  const symm_status status = symm_window_alloc(rank->comm, 256, NULL, &window);
  if (status == SYMM_UNSUPPORTED) {
    return 0;
  }
  check(status);
  check(symm_window_data(window, shared->rank, &mine));
  check(symm_window_data(window, shared->rank == 0 ? 1 : 0, &peers));
  int failed = 0;
  for (int i = -1; i < repeats; ++i) {
    uint64_t ns = 0;
    shared_barrier(shared);
    if (shared->rank < 2) {
      gpu_ping_pong(&rank->kernels, rank->stream, (gpu_address)(uintptr_t)mine,
                    (gpu_address)(uintptr_t)peers, shared->rank == 0,
                    (unsigned)((i + 1) * flag_turns), flag_turns, (uint64_t)1000000000,
                    rank->counters);
      gpu_rank_wait(rank);
      gpu_check(rank->driver->copy_to_host(&ns, rank->counters, sizeof ns), "cuMemcpyDtoH");
      failed = failed || ns == 0;
    }
    samples[i < 0 ? 0 : i] =
        shared_max(shared, (double)ns / 1000 / (flag_turns - flag_untimed_turns));
  }
  shared_barrier(shared);
  symm_window_free(window);
  return shared_sum(shared, (uint64_t)failed) > 0 ? 0 : samples_median(samples, repeats);
}

static void tell(FILE* file, const char* name, double value) {
  if (file != NULL) {
    fprintf(file, WORKER_FLOOR "%s %.6g\n", name, value);
    fflush(file);
  }
}

void gpu_floors(struct gpu_rank* rank, FILE* file) {
  const int programmatic = rank->kernels.functions[GPU_DEPENDENT] != NULL;
  watchdog_feed(rank->control.shared.watch_s);
  tell(file, "graph_node_us", time_nodes(rank, 0));
  tell(file, "graph_node_programmatic_us", programmatic ? time_nodes(rank, 1) : 0);
  tell(file, "launch_us", time_launches(rank, 0));
  tell(file, "launch_programmatic_us", programmatic ? time_launches(rank, 1) : 0);
  tell(file, "flag_us", time_flag(rank));
  tell(file, "creation_ms", rank->creation_ms);
  tell(file, "creation_again_ms", rank->creation_again_ms);
}
