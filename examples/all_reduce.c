/* Every rank loads its own NumPy array, all of them are reduced, every rank writes the result.
 *
 *   all_reduce tcp://127.0.0.1:29500 0 2 rank0.npy sum0.npy &
 *   all_reduce tcp://127.0.0.1:29500 1 2 rank1.npy sum1.npy
 *
 *   mpirun -n 2 all_reduce env:// rank%r.npy sum%r.npy max      rank and size come from the
 * launcher
 *
 * In file names %r is the rank. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <symm.h>

#include "npy.h"

static void check(symm_status status) {
  if (status != SYMM_OK) {
    fprintf(stderr, "all_reduce: %s\n", symm_last_error());
    exit(1);
  }
}

static void check_file(int result, const char* path, const char* error) {
  if (result != 0) {
    fprintf(stderr, "all_reduce: %s: %s\n", path, error);
    exit(1);
  }
}

static void usage(void) {
  fputs(
      "usage: all_reduce [--dtype NAME] ADDRESS RANK SIZE INPUT.npy OUTPUT.npy [OP]\n"
      "       all_reduce [--dtype NAME] env:// INPUT.npy OUTPUT.npy [OP]\n"
      "  OP: sum (default), prod, max, min, avg\n"
      "  --dtype: take the elements as bfloat16, float8_e4m3 or float8_e5m2, which NumPy lacks\n",
      stderr);
  exit(2);
}

static int32_t number(const char* text) {
  char* end;
  const long value = strtol(text, &end, 10);
  if (end == text || *end != '\0' || value < 0 || value > INT32_MAX) {
    fprintf(stderr, "all_reduce: '%s' is not a rank or size\n", text);
    usage();
  }
  return (int32_t)value;
}

static symm_op op_by_name(const char* name) {
  static const char* const names[] = {"sum", "prod", "max", "min", "avg"}; /* in symm_op's order */
  for (int i = 0; i < 5; ++i) {
    if (strcmp(name, names[i]) == 0) {
      return (symm_op)i;
    }
  }
  fprintf(stderr, "all_reduce: '%s' is not an operation\n", name);
  usage();
  return SYMM_OP_NONE;
}

/* "sum%r.npy" to "sum3.npy". */
static void put_rank(char* path, size_t size, const char* pattern, int32_t rank) {
  const char* mark = strstr(pattern, "%r");
  const int length = mark == NULL ? snprintf(path, size, "%s", pattern)
                                  : snprintf(path, size, "%.*s%d%s", (int)(mark - pattern), pattern,
                                             rank, mark + 2);
  check_file(length < (int)size ? 0 : -1, pattern, "the name is too long");
}

int main(int argc, char** argv) {
  const char* dtype = NULL;
  if (argc > 2 && strcmp(argv[1], "--dtype") == 0) {
    dtype = argv[2];
    argv += 2;
    argc -= 2;
  }
  const int from_env = argc > 1 && strcmp(argv[1], "env://") == 0;
  const int files = from_env ? 2 : 4; /* where the file names start */
  if (argc != files + 2 && argc != files + 3) {
    usage();
  }
  const symm_op op = argc == files + 3 ? op_by_name(argv[files + 2]) : SYMM_SUM;

  symm_comm* comm;
  check(symm_comm_create(argv[1], from_env ? SYMM_FROM_ADDRESS : number(argv[2]),
                         from_env ? SYMM_FROM_ADDRESS : number(argv[3]), SYMM_CPU, NULL, &comm));
  int32_t rank;
  check(symm_comm_rank(comm, &rank));

  char path[4096], error[NPY_ERROR_SIZE];
  npy_array array;
  put_rank(path, sizeof path, argv[files], rank);
  check_file(npy_load(path, &array, error), path, error);
  if (dtype != NULL || array.dtype == SYMM_DTYPE_NONE) {
    const symm_dtype wanted = npy_dtype_by_name(dtype != NULL ? dtype : "");
    check_file(npy_view(&array, wanted, error), path, error);
  }

  check(symm_all_reduce(comm, array.data, array.data, array.count, array.dtype, op, NULL));

  put_rank(path, sizeof path, argv[files + 1], rank);
  check_file(npy_save(path, &array, error), path, error);
  npy_free(&array);
  symm_comm_free(comm);
  return 0;
}
