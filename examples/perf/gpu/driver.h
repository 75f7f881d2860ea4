/* The CUDA driver as symm-perf uses it: found at run time, so that symm-perf is built and runs
 * where there is no CUDA. Types and prototypes are the driver's own, declared afresh. */
#ifndef SYMM_PERF_GPU_DRIVER_H
#define SYMM_PERF_GPU_DRIVER_H

#include <stddef.h>
#include <stdint.h>

typedef uint64_t gpu_address; /* CUdeviceptr */
typedef void* gpu_stream;     /* CUstream; so the other handles */

struct gpu_launch_attribute { /* CUlaunchAttribute */
  int id;
  int padding;
  union {
    int number;
    char room[64];
  } value;
};

struct gpu_launch_config { /* CUlaunchConfig */
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  gpu_stream stream;
  struct gpu_launch_attribute* attributes;
  unsigned attribute_count;
};

enum {
  GPU_PROGRAMMATIC_LAUNCH = 6, /* CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION */
  GPU_CLOCK_KHZ = 13,          /* CU_DEVICE_ATTRIBUTE_CLOCK_RATE */
  GPU_PROCESSORS = 16,         /* ..._MULTIPROCESSOR_COUNT */
  GPU_CAPABILITY_MAJOR = 75,   /* ..._COMPUTE_CAPABILITY_MAJOR */
  GPU_STREAM_NON_BLOCKING = 1, /* CU_STREAM_NON_BLOCKING */
  GPU_CAPTURE_THREAD_LOCAL = 1 /* CU_STREAM_CAPTURE_MODE_THREAD_LOCAL */
};

/* Every function returns 0 or a CUresult. */
struct gpu_driver {
  int (*init)(unsigned);
  int (*error_name)(int, const char**);
  int (*error_text)(int, const char**);
  int (*version)(int*);
  int (*device_count)(int*);
  int (*device_get)(int*, int);
  int (*device_name)(char*, int, int);
  int (*device_attribute)(int*, int, int);
  int (*context_retain)(void**, int);
  int (*context_release)(int);
  int (*context_set)(void*);
  int (*memory_alloc)(gpu_address*, size_t);
  int (*memory_free)(gpu_address);
  int (*copy_to_device)(gpu_address, const void*, size_t);
  int (*copy_to_host)(void*, gpu_address, size_t);
  int (*fill)(gpu_address, unsigned char, size_t, gpu_stream);
  int (*stream_create)(gpu_stream*, unsigned);
  int (*stream_destroy)(gpu_stream);
  int (*stream_wait)(gpu_stream);
  int (*capture_begin)(gpu_stream, int);
  int (*capture_end)(gpu_stream, void**);
  int (*graph_instantiate)(void**, void*, unsigned long long);
  int (*graph_upload)(void*, gpu_stream);
  int (*graph_launch)(void*, gpu_stream);
  int (*graph_exec_destroy)(void*);
  int (*graph_destroy)(void*);
  int (*event_create)(void**, unsigned);
  int (*event_destroy)(void*);
  int (*event_record)(void*, gpu_stream);
  int (*event_elapsed)(float*, void*, void*);
  int (*module_load)(void**, const void*);
  int (*module_unload)(void*);
  int (*module_function)(void**, void*, const char*);
  int (*launch)(const struct gpu_launch_config*, void*, void**, void**);
};

/* The process's table once libcuda.so.1 is loaded and initialised; NULL where it cannot be, with
 * `reason` saying why. */
const struct gpu_driver* gpu_driver_get(char* reason, size_t size);

/* "CUDA_ERROR_OUT_OF_MEMORY (out of memory)"; for messages, of the calling thread, until its next
 * call. */
const char* gpu_error_text(int error);

/* Ends the process with a message (fail_rank) unless `error` is 0. */
void gpu_check(int error, const char* what);

#endif
