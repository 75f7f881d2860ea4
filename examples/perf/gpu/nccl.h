/* NCCL as symm-perf times it: found at run time. */
#ifndef SYMM_PERF_GPU_NCCL_H
#define SYMM_PERF_GPU_NCCL_H

#include <stddef.h>

struct nccl_id { /* ncclUniqueId */
  char bytes[128];
};

enum {
  NCCL_SYMMETRIC_WINDOW = 1,  /* NCCL_WIN_COLL_SYMMETRIC */
  NCCL_FIRST_WINDOWS = 22700, /* versions as ncclGetVersion numbers them */
  NCCL_FIRST_FLOAT8 = 22400
};

/* Element types and operations have symm.h's numbers; results are 0 for success. */
struct nccl {
  int (*version)(int*);
  int (*unique_id)(struct nccl_id*);
  int (*init_rank)(void**, int, struct nccl_id, int);
  int (*destroy)(void*);
  int (*abort)(void*);
  const char* (*error_text)(int);
  const char* (*last_error)(void*);
  int (*all_reduce)(const void*, void*, size_t, int, int, void*, void*);
  /* NULL in versions that lack them. */
  int (*memory_alloc)(void**, size_t);
  int (*memory_free)(void*);
  int (*window_register)(void*, void*, size_t, void**, int);
  int (*window_deregister)(void*, void*);
};

/* Where libnccl.so.2 is: the environment's SYMM_PERF_NCCL, the loader's places, Python's packages.
 * 0: nowhere. */
int nccl_find(char* path, size_t size);

/* NULL where the file does not load or lacks a function; `reason` then says why. */
const struct nccl* nccl_load(const char* path, char* reason, size_t size);

/* "2.28.9"; "" where it cannot be loaded. */
void nccl_version_text(const struct nccl* nccl, char* buffer, size_t size);

#endif
