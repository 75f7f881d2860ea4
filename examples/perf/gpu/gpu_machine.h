/* The GPUs of the machine that figures come from, and the software on them. */
#ifndef SYMM_PERF_GPU_GPU_MACHINE_H
#define SYMM_PERF_GPU_GPU_MACHINE_H

#include <stddef.h>

enum { GPU_MACHINE_MAX = 64, GPU_MACHINE_MAX_FLOORS = 16 };

struct gpu_floor {
  char name[32];
  double value; /* 0: could not be measured */
};

struct gpu_machine {
  int count;
  char names[GPU_MACHINE_MAX][64];
  char driver[32]; /* "580.159.04"; texts are "" where nothing is known or timed */
  char cuda[16];   /* the driver's */
  char nccl[32];
  char torch[64];
  int multicast_off; /* NCCL_NVLS_ENABLE=0 */
  struct gpu_floor floors[GPU_MACHINE_MAX_FLOORS];
  int floor_count;
};

/* Fills in all but nccl, torch and floors. 0: there is no GPU that can be used; `reason` says why.
 */
int gpu_machine_read(struct gpu_machine* machine, char* reason, size_t size);

/* Takes a floor of a WORKER_FLOOR line, "name figure". */
void gpu_machine_add_floor(struct gpu_machine* machine, const char* line);

/* 0: the worker told none of this name. */
double gpu_machine_floor(const struct gpu_machine* machine, const char* name);

#endif
