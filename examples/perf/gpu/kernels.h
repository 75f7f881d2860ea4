/* What symm-perf runs on a GPU beside the all-reduces: inputs, checks, a producer, and the kernels
 * that the machine's floors are timed with. PTX text, which the driver compiles. */
#ifndef SYMM_PERF_GPU_KERNELS_H
#define SYMM_PERF_GPU_KERNELS_H

#include "driver.h"

enum gpu_kernel {
  GPU_EXPAND,    /* out[i] = tile[(i + shift) % period] ^ mask */
  GPU_COMPARE,   /* *wrong += elements with in[i] != tile[(i + shift) % period] */
  GPU_PRODUCE,   /* copies bytes, and lasts at least so many clock cycles */
  GPU_EMPTY,     /* nothing */
  GPU_PING_PONG, /* a flag there and back between two GPUs */
  GPU_DEPENDENT, /* a programmatic launch: waits for the kernel before it, then lets the next go */
  GPU_KERNEL_COUNT
};

struct gpu_kernels {
  const struct gpu_driver* driver;
  void* modules[GPU_KERNEL_COUNT];
  void* functions[GPU_KERNEL_COUNT]; /* GPU_DEPENDENT is NULL where GPUs have no such launches */
  unsigned processors;
  int clock_khz;
};

/* For the current context, on `device`. Ends the process with a message where it fails. */
void gpu_kernels_load(struct gpu_kernels* kernels, const struct gpu_driver* driver, int device);
void gpu_kernels_unload(struct gpu_kernels* kernels);

/* A repeating pattern of elements in GPU memory. */
struct gpu_tile {
  gpu_address elements;
  size_t period; /* elements */
  size_t shift;
  unsigned element_bytes;
};

/* All stream-ordered. mask 0xff writes the complement, which cannot be right by chance. */
void gpu_expand(const struct gpu_kernels* kernels, gpu_stream stream, gpu_address out, size_t count,
                const struct gpu_tile* tile, unsigned mask);
void gpu_compare(const struct gpu_kernels* kernels, gpu_stream stream, gpu_address in, size_t count,
                 const struct gpu_tile* tile, gpu_address wrong);
/* Both addresses aligned to 16 bytes. */
void gpu_produce(const struct gpu_kernels* kernels, gpu_stream stream, gpu_address out,
                 gpu_address from, size_t bytes, double us);
void gpu_empty(const struct gpu_kernels* kernels, gpu_stream stream, int programmatic);
/* Turns start + 1 .. start + turns, the odd ones the first rank's; *result is the ns from the tenth
 * turn to the last, 0 when `bound_ns` was over first. */
void gpu_ping_pong(const struct gpu_kernels* kernels, gpu_stream stream, gpu_address mine,
                   gpu_address peers, int first, unsigned start, unsigned turns, uint64_t bound_ns,
                   gpu_address result);

#endif
