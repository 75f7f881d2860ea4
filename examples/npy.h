/* Reads and writes NumPy's .npy files: format 1.0 and 2.0, C order, little-endian, the element
 * types of symm. Strict: a file is taken whole or refused with a message that says what is wrong
 * with it. */
#ifndef SYMM_EXAMPLES_NPY_H
#define SYMM_EXAMPLES_NPY_H

#include <stddef.h>
#include <stdio.h>
#include <symm.h>

enum npy_limits { NPY_MAX_DIMS = 32, NPY_MAX_DESCR = 8, NPY_ERROR_SIZE = 256 };

typedef struct npy_array {
  char descr[NPY_MAX_DESCR]; /* NumPy's name of the element type, "<f4"; written back as it was read
                              */
  symm_dtype dtype;          /* what it is to symm; SYMM_DTYPE_NONE for raw bytes ("|V1", "<V2") */
  size_t item_size;          /* bytes of an element */
  int dims;
  size_t shape[NPY_MAX_DIMS];
  size_t count; /* elements: the product of the shape, 1 for no dimensions */
  void* data;   /* malloc'ed, never NULL in an array that was read; give back with npy_free */
} npy_array;

/* Each returns 0, or -1 with a message in `error` (NPY_ERROR_SIZE bytes). Only success writes
 * *array. */
int npy_load(const char* path, npy_array* array, char* error);
int npy_save(const char* path, const npy_array* array, char* error);

/* The same on a stream that can be sought in. npy_read takes everything up to its end. */
int npy_read(FILE* file, npy_array* array, char* error);
int npy_write(FILE* file, const npy_array* array, char* error);

void npy_free(npy_array* array);

/* NumPy has no bfloat16 and no float8: files carry them in elements of the same size ("<u2", "<V2",
 * "|u1", "|V1"). Takes the array as `dtype`; -1 if the sizes differ. */
int npy_view(npy_array* array, symm_dtype dtype, char* error);

/* "float32" to SYMM_FLOAT32 and so on; SYMM_DTYPE_NONE for a name symm does not have. */
symm_dtype npy_dtype_by_name(const char* name);

#endif
