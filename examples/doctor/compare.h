/* What the ranks of a job would use, side by side. */
#ifndef SYMM_DOCTOR_COMPARE_H
#define SYMM_DOCTOR_COMPARE_H

#include <stdint.h>

#include "check.h"

/* What one rank says of itself. Ranks of one machine exchange it as it lies in memory. */
struct rank_facts {
  int32_t rank;
  int32_t has_gpu; /* SYMM_LOCAL_GPU works there */
  char host[64];
  char device[128]; /* "GPU 0 (NVIDIA H200, GPU-...)", or why there is none */
  char gpu[64];     /* the GPU's UUID, "" without one */
  char symm[32];    /* its version */
  char nccl[64];    /* its version, "none", with ", no windows" */
};

/* Adds one check for each thing in which ranks of a job should not differ. In the order of ranks;
 * `everybody` is what to call all of them: "every rank". */
void compare_ranks(struct checks* checks, const char* section, const struct rank_facts* ranks,
                   int count, const char* everybody);

/* "0-2, 5" of those whose flag is set. */
void list_ranks(char* text, size_t size, const struct rank_facts* ranks, int count,
                const char* flags);

#endif
