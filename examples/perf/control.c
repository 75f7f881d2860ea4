#include "control.h"

#include <limits.h>
#include <string.h>

#include "engine.h"

void control_comm_options(const struct perf_options* options, const char* name,
                          symm_comm_options* comm_options) {
  memset(comm_options, 0, sizeof *comm_options);
  comm_options->size = sizeof *comm_options;
  comm_options->name = name;
  comm_options->wait_timeout_ms =
      options->timeout_s > INT_MAX / 1000 ? INT_MAX : options->timeout_s * 1000;
  comm_options->timeout_ms = comm_options->wait_timeout_ms;
}

void control_join(struct control* control, const struct worker* worker, int rank,
                  size_t part_bytes) {
  const struct perf_options* options = worker->options;
  symm_comm_options comm_options;
  control_comm_options(options, "symm-perf", &comm_options);
  check(symm_comm_create(worker->address, rank, options->ranks, SYMM_CPU, &comm_options,
                         &control->comm));
  check(symm_window_alloc(control->comm, shared_window_bytes(part_bytes), NULL, &control->window));
  memset(&control->shared, 0, sizeof control->shared);
  control->shared.rank = rank;
  control->shared.size = options->ranks;
  control->shared.watch_s = worker->keeps_watch ? options->timeout_s : 0;
  control->shared.crowded = worker->crowded;
  for (int peer = 0; peer < options->ranks; ++peer) {
    void* slice;
    check(symm_window_data(control->window, peer, &slice));
    control->shared.slices[peer] = slice;
  }
}

void control_leave(struct control* control) {
  symm_window_free(control->window);
  symm_comm_free(control->comm);
}
