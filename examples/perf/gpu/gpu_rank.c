#include "gpu_rank.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../engine.h"
#include "gpu_nccl.h"

static const size_t creation_window_bytes = (size_t)64 << 20;

static gpu_address allocate(const struct gpu_rank* rank, size_t bytes) {
  gpu_address address = 0;
  const int error = rank->driver->memory_alloc(&address, bytes + GPU_GUARD_BYTES);
  if (error != 0) {
    fail_rank("no memory of %zu bytes on GPU %d: %s; lower --max", bytes, rank->device,
              gpu_error_text(error));
  }
  return address;
}

static void release(const struct gpu_rank* rank, gpu_address address) {
  if (address != 0) {
    rank->driver->memory_free(address);
  }
}

static void open_device(struct gpu_rank* rank) {
  char reason[256];
  const struct gpu_driver* driver = gpu_driver_get(reason, sizeof reason);
  if (driver == NULL) {
    fail_rank("no GPU: %s", reason);
  }
  rank->driver = driver;
  gpu_check(driver->device_count(&rank->gpu_count), "cuDeviceGetCount");
  if (rank->gpu_count == 0) {
    fail_rank("no GPU: the driver sees none");
  }
  rank->device = rank->control.shared.rank % rank->gpu_count;
  gpu_check(driver->device_get(&rank->handle, rank->device), "cuDeviceGet");
  /* The primary context: the one that symm, NCCL and the CUDA runtime use. */
  gpu_check(driver->context_retain(&rank->context, rank->handle), "cuDevicePrimaryCtxRetain");
  gpu_check(driver->context_set(rank->context), "cuCtxSetCurrent");
  gpu_check(driver->stream_create(&rank->stream, GPU_STREAM_NON_BLOCKING), "cuStreamCreate");
  for (int i = 0; i < 2; ++i) {
    gpu_check(driver->event_create(&rank->events[i], 0), "cuEventCreate");
  }
  gpu_kernels_load(&rank->kernels, driver, rank->handle);
}

static void allocate_buffers(struct gpu_rank* rank) {
  static const unsigned char constants[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0xa5};
  const struct perf_options* options = rank->options;
  rank->input = allocate(rank, options->max_bytes);
  if (!options->in_place) {
    rank->output = allocate(rank, options->max_bytes);
  }
  if (options->behind_producer) {
    rank->source = allocate(rank, options->max_bytes);
  }
  rank->constants = allocate(rank, sizeof constants);
  gpu_check(rank->driver->copy_to_device(rank->constants, constants, sizeof constants),
            "cuMemcpyHtoD");
  rank->counters = allocate(rank, 2 * sizeof(uint64_t));
  const size_t tile_bytes = (size_t)GPU_TILE_PERIOD * sizeof(uint64_t);
  rank->tile = allocate(rank, tile_bytes);
  rank->result_tile = allocate(rank, tile_bytes);
  rank->host_tile = malloc(tile_bytes);
  rank->host_result_tile = malloc(tile_bytes);
  if (rank->host_tile == NULL || rank->host_result_tile == NULL) {
    fail_rank("out of memory");
  }
}

/* One communicator and a window of 64 MiB; ms, the slowest rank's. GPUs in several peer domains
 * have no windows: then 0, and a window only where it is to be timed, which says why it cannot be.
 */
static double create(struct gpu_rank* rank, const char* name, symm_comm** comm,
                     symm_window** window) {
  const struct perf_options* options = rank->options;
  symm_comm_options comm_options;
  control_comm_options(options, name, &comm_options);
  comm_options.flags = (options->not_sole ? 0 : SYMM_COMM_SOLE) |
                       (options->ranks > rank->gpu_count ? SYMM_COMM_SHARE_GPU : 0);
  shared_barrier(&rank->control.shared);
  const double begin = now_us();
  check(symm_comm_create(rank->worker->address, rank->control.shared.rank, options->ranks,
                         rank->device, &comm_options, comm));
  *window = NULL;
  const symm_status status = symm_window_alloc(*comm, creation_window_bytes, NULL, window);
  if (status != SYMM_UNSUPPORTED || (options->forms & PERF_WINDOW) != 0) {
    check(status);
  }
  const double ms = status == SYMM_OK ? (now_us() - begin) / 1000 : 0;
  return shared_max(&rank->control.shared, ms);
}

static void join_symm(struct gpu_rank* rank) {
  symm_comm* other_comm;
  symm_window* window;
  void* data;
  rank->creation_ms = create(rank, "symm-perf gpu", &rank->comm, &window);
  symm_window_free(window);
  rank->creation_again_ms = create(rank, "symm-perf gpu again", &other_comm, &window);
  symm_window_free(window);
  symm_comm_free(other_comm);
  if ((rank->options->forms & PERF_WINDOW) != 0) {
    check(symm_window_alloc(rank->comm, rank->options->max_bytes + GPU_GUARD_BYTES, NULL,
                            &rank->window));
    check(symm_window_data(rank->window, rank->control.shared.rank, &data));
    rank->window_data = (gpu_address)(uintptr_t)data;
  }
}

void gpu_rank_join(struct gpu_rank* rank, const struct worker* worker) {
  memset(rank, 0, sizeof *rank);
  rank->worker = worker;
  rank->options = worker->options;
  control_join(&rank->control, worker, worker->rank, 256);
  open_device(rank);
  allocate_buffers(rank);
  if (rank->options->forms != PERF_NO_FORM) {
    join_symm(rank);
  }
  gpu_nccl_join(rank);
}

void gpu_rank_leave(struct gpu_rank* rank) {
  const struct gpu_driver* driver = rank->driver;
  gpu_nccl_leave(rank);
  if (rank->window != NULL) {
    symm_window_free(rank->window);
  }
  if (rank->comm != NULL) {
    symm_comm_free(rank->comm);
  }
  release(rank, rank->input);
  release(rank, rank->output);
  release(rank, rank->source);
  release(rank, rank->constants);
  release(rank, rank->counters);
  release(rank, rank->tile);
  release(rank, rank->result_tile);
  free(rank->host_tile);
  free(rank->host_result_tile);
  gpu_kernels_unload(&rank->kernels);
  for (int i = 0; i < 2; ++i) {
    driver->event_destroy(rank->events[i]);
  }
  driver->stream_destroy(rank->stream);
  driver->context_release(rank->handle);
  control_leave(&rank->control);
}

void gpu_rank_wait(struct gpu_rank* rank) {
  gpu_check(rank->driver->stream_wait(rank->stream), "cuStreamSynchronize");
  if (rank->comm != NULL) {
    check(symm_comm_check(rank->comm, NULL));
  }
}
