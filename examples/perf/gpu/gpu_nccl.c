#include "gpu_nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../engine.h"

void gpu_nccl_check(const struct gpu_rank* rank, int result, const char* what) {
  if (result != 0) {
    fail_rank("%s failed: %s (%.500s); --against none leaves NCCL out", what,
              rank->nccl->error_text(result), rank->nccl->last_error(NULL));
  }
}

/* A buffer in a symmetric window; NULL where NCCL gives none: registering may succeed with a NULL
 * window. */
static void* make_window(struct gpu_rank* rank, size_t bytes, void** window) {
  void* buffer = NULL;
  gpu_nccl_check(rank, rank->nccl->memory_alloc(&buffer, bytes), "ncclMemAlloc");
  const int result =
      rank->nccl->window_register(rank->nccl_comm, buffer, bytes, window, NCCL_SYMMETRIC_WINDOW);
  gpu_nccl_check(rank, result, "ncclCommWindowRegister");
  return buffer;
}

static void make_windows(struct gpu_rank* rank) {
  const struct nccl* nccl = rank->nccl;
  const size_t bytes = rank->options->max_bytes + GPU_GUARD_BYTES;
  if (rank->nccl_version < NCCL_FIRST_WINDOWS || nccl->window_register == NULL ||
      nccl->memory_alloc == NULL) {
    return; /* the same library on every rank */
  }
  rank->nccl_input = make_window(rank, bytes, &rank->nccl_windows[0]);
  int missing = rank->nccl_windows[0] == NULL;
  if (!rank->options->in_place) {
    rank->nccl_output = make_window(rank, bytes, &rank->nccl_windows[1]);
    missing = missing || rank->nccl_windows[1] == NULL;
  }
  if (shared_sum(&rank->control.shared, (uint64_t)missing) == 0) {
    return;
  }
  if (rank->control.shared.rank == 0) {
    fputs("symm-perf: note: NCCL gives no symmetric window here; nccl_symmetric is left out\n",
          stderr);
  }
  /* The memory stays until the process ends: NCCL may have kept what it registered. */
  rank->nccl_input = NULL;
}

void gpu_nccl_join(struct gpu_rank* rank) {
  struct shared* shared = &rank->control.shared;
  const char* path = getenv("SYMM_PERF_NCCL"); /* perf.c has looked for it */
  char reason[512];
  if (!rank->options->against_nccl || path == NULL || *path == '\0' ||
      rank->options->ranks > rank->gpu_count) {
    return;
  }
  rank->nccl = nccl_load(path, reason, sizeof reason);
  if (rank->nccl == NULL) {
    fail_rank("%s does not load: %s; --against none leaves NCCL out", path, reason);
  }
  gpu_nccl_check(rank, rank->nccl->version(&rank->nccl_version), "ncclGetVersion");
  struct nccl_id id;
  if (shared->rank == 0) {
    gpu_nccl_check(rank, rank->nccl->unique_id(&id), "ncclGetUniqueId");
    memcpy(shared_part(shared, 0), &id, sizeof id);
  }
  shared_barrier(shared);
  memcpy(&id, shared_part(shared, 0), sizeof id);
  gpu_nccl_check(rank,
                 rank->nccl->init_rank(&rank->nccl_comm, rank->options->ranks, id, shared->rank),
                 "ncclCommInitRank");
  make_windows(rank);
}

void gpu_nccl_leave(struct gpu_rank* rank) {
  const struct nccl* nccl = rank->nccl;
  if (nccl == NULL) {
    return;
  }
  for (int i = 0; i < 2; ++i) {
    if (rank->nccl_windows[i] != NULL && nccl->window_deregister != NULL) {
      nccl->window_deregister(rank->nccl_comm, rank->nccl_windows[i]);
    }
  }
  nccl->destroy(rank->nccl_comm);
  if (nccl->memory_free != NULL && rank->nccl_input != NULL) {
    nccl->memory_free(rank->nccl_input);
    if (rank->nccl_output != NULL) {
      nccl->memory_free(rank->nccl_output);
    }
  }
}
