#include "mpi_plugin.h"

#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

static MPI_Datatype mpi_dtype(symm_dtype dtype) {
  switch (dtype) {
    case SYMM_INT8:
      return MPI_INT8_T;
    case SYMM_UINT8:
      return MPI_UINT8_T;
    case SYMM_INT32:
      return MPI_INT32_T;
    case SYMM_UINT32:
      return MPI_UINT32_T;
    case SYMM_INT64:
      return MPI_INT64_T;
    case SYMM_UINT64:
      return MPI_UINT64_T;
    case SYMM_FLOAT32:
      return MPI_FLOAT;
    case SYMM_FLOAT64:
      return MPI_DOUBLE;
    default:
      return MPI_DATATYPE_NULL;
  }
}

static MPI_Op mpi_op(symm_op op) {
  switch (op) {
    case SYMM_SUM:
      return MPI_SUM;
    case SYMM_PROD:
      return MPI_PROD;
    case SYMM_MAX:
      return MPI_MAX;
    case SYMM_MIN:
      return MPI_MIN;
    default:
      return MPI_OP_NULL;
  }
}

static int init(void) { return MPI_Init(NULL, NULL); }

static int rank(void) {
  int value = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &value);
  return value;
}

static int size(void) {
  int value = -1;
  MPI_Comm_size(MPI_COMM_WORLD, &value);
  return value;
}

static void library(char* buffer, size_t buffer_size) {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length;
  MPI_Get_library_version(text, &length);
  /* The rest of it is who built it where. */
  snprintf(buffer, buffer_size, "%.*s", (int)strcspn(text, ",\n"), text);
}

static int has_dtype(symm_dtype dtype) { return mpi_dtype(dtype) != MPI_DATATYPE_NULL; }

static int all_reduce(const void* input, void* output, size_t count, symm_dtype dtype, symm_op op) {
  if (count > INT_MAX || mpi_op(op) == MPI_OP_NULL) {
    return MPI_ERR_ARG;
  }
  return MPI_Allreduce(input == output ? MPI_IN_PLACE : input, output, (int)count, mpi_dtype(dtype),
                       mpi_op(op), MPI_COMM_WORLD);
}

static int finalize(void) { return MPI_Finalize(); }

const struct mpi_plugin* symm_perf_mpi_plugin(void) {
  static const struct mpi_plugin plugin = {
      MPI_PLUGIN_VERSION, init, rank, size, library, has_dtype, all_reduce, finalize,
  };
  return &plugin;
}
