/* How a rank meets the others, on the CPU, whatever it times: a communicator of its own and the
 * window behind `struct shared`. */
#ifndef SYMM_PERF_CONTROL_H
#define SYMM_PERF_CONTROL_H

#include <symm.h>

#include "shared.h"
#include "worker.h"

struct control {
  symm_comm* comm;
  symm_window* window;
  struct shared shared;
};

/* Collective. Each rank's slice has room for `part_bytes`. */
void control_join(struct control* control, const struct worker* worker, int rank,
                  size_t part_bytes);
void control_leave(struct control* control);

/* Options of any communicator of this run: its name, and --timeout for every wait. */
void control_comm_options(const struct perf_options* options, const char* name,
                          symm_comm_options* comm_options);

#endif
