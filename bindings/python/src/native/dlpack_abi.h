/* The part of DLPack's ABI (version 1.x) that this binding reads and writes. Layouts and numbers
 * are DLPack's. */
#ifndef SYMM_PYTHON_DLPACK_ABI_H_
#define SYMM_PYTHON_DLPACK_ABI_H_

#include <stdint.h>

enum {
  DLPACK_CPU = 1,
  DLPACK_CUDA = 2,
  DLPACK_CUDA_HOST = 3,
  DLPACK_CUDA_MANAGED = 13,
};

enum {
  DLPACK_INT = 0,
  DLPACK_UINT = 1,
  DLPACK_FLOAT = 2,
  DLPACK_BFLOAT = 4,
  DLPACK_FLOAT8_E4M3FN = 10,
  DLPACK_FLOAT8_E5M2 = 12,
};

enum { DLPACK_FLAG_READ_ONLY = 1 };

typedef struct dlpack_device {
  int32_t type;
  int32_t id;
} dlpack_device;

typedef struct dlpack_dtype {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} dlpack_dtype;

typedef struct dlpack_tensor {
  void* data;
  dlpack_device device;
  int32_t ndim;
  dlpack_dtype dtype;
  int64_t* shape;
  int64_t* strides; /* in elements; NULL: C order */
  uint64_t byte_offset;
} dlpack_tensor;

typedef struct dlpack_version {
  uint32_t major;
  uint32_t minor;
} dlpack_version;

/* In a capsule named "dltensor". */
typedef struct dlpack_managed {
  dlpack_tensor tensor;
  void* context;
  void (*deleter)(struct dlpack_managed* self);
} dlpack_managed;

/* In a capsule named "dltensor_versioned". */
typedef struct dlpack_managed_versioned {
  dlpack_version version;
  void* context;
  void (*deleter)(struct dlpack_managed_versioned* self);
  uint64_t flags;
  dlpack_tensor tensor;
} dlpack_managed_versioned;

/* In a capsule named "dlpack_exchange_api", the attribute __dlpack_c_exchange_api__ of an array
 * type: how C code looks at an array without a capsule of its own. */
typedef struct dlpack_exchange {
  dlpack_version version;
  struct dlpack_exchange* previous;
  void* allocate;
  void* from_object;
  void* to_object;
  int (*look)(void* object,
              dlpack_tensor* out); /* may be NULL; borrows; -1 with a Python exception */
  int (*current_stream)(int32_t device_type, int32_t device_id, void** stream);
} dlpack_exchange;

#endif /* SYMM_PYTHON_DLPACK_ABI_H_ */
