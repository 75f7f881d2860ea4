/* Everything a rank holds on its GPU. */
#ifndef SYMM_PERF_GPU_RANK_H
#define SYMM_PERF_GPU_RANK_H

#include "../control.h"
#include "kernels.h"
#include "nccl.h"

enum {
  GPU_GUARD_BYTES = 64, /* after every buffer: what is written there is found */
  /* Inputs and results repeat after so many elements, a prime: what lands in the wrong place is
   * wrong there, and the CPU has only one period to compute. */
  GPU_TILE_PERIOD = 1048573
};

struct gpu_rank {
  const struct worker* worker;
  const struct perf_options* options;
  struct control control;
  const struct gpu_driver* driver;
  int gpu_count;
  int device; /* CUDA's ordinal; here the driver's handle is the same number's */
  int handle;
  void* context;
  gpu_stream stream;
  void* events[2];
  struct gpu_kernels kernels;

  gpu_address input;
  gpu_address output;
  gpu_address source;    /* --behind-producer: what the producer writes into the input */
  gpu_address constants; /* 8 zeros, a guard's byte */
  gpu_address counters;  /* two 64-bit words */
  gpu_address tile;      /* a period of the input, and of the result */
  gpu_address result_tile;
  unsigned char* host_tile;
  unsigned char* host_result_tile;

  symm_comm* comm; /* NULL: --form none */
  symm_window* window;
  gpu_address window_data;
  double creation_ms; /* of comm and a window of 64 MiB, the slowest rank's; and of another pair */
  double creation_again_ms;

  const struct nccl* nccl; /* NULL: not timed */
  int nccl_version;
  void* nccl_comm;
  void* nccl_input; /* in symmetric windows; NULL: there are none */
  void* nccl_output;
  void* nccl_windows[2];
};

/* Collective. Ends the process with a message where anything fails. */
void gpu_rank_join(struct gpu_rank* rank, const struct worker* worker);
void gpu_rank_leave(struct gpu_rank* rank);

/* Waits for the rank's stream; an error of symm's communicator ends the process too. */
void gpu_rank_wait(struct gpu_rank* rank);

#endif
