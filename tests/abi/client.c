/* A program of a user of symm 0.1: two ranks as threads, every function, options structs as 0.1 had
 * them. SYMM_CLIENT_HEADER says against which symm.h it is compiled; it names nothing that came
 * after 0.1. */
#define _POSIX_C_SOURCE 200112L
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include SYMM_CLIENT_HEADER

enum { RANKS = 2, COUNT = 1000 };

static char address[SYMM_ADDRESS_SIZE];

static void fail(int line, const char* what) {
  fprintf(stderr, "client.c:%d: %s\n  symm_last_error: %s\n", line, what, symm_last_error());
  exit(1);
}
#define CHECK(condition)                          \
  do {                                            \
    if (!(condition)) fail(__LINE__, #condition); \
  } while (0)
#define OK(call) CHECK((call) == SYMM_OK)

static symm_comm_options comm_options(const char* name) {
  symm_comm_options options;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.name = name;
  options.scratch_bytes = 1 << 20;
  options.timeout_ms = 60000;
  options.wait_timeout_ms = 60000;
  return options;
}

/* What a call writes as JSON, by the two steps that symm.h describes. */
static void check_json(const symm_comm* comm, int plan) {
  char* text;
  size_t needed = 0, again = 0;
  if (plan) {
    OK(symm_plan(comm, NULL, COUNT, SYMM_FLOAT32, SYMM_SUM, NULL, 0, &needed));
  } else {
    OK(symm_report(comm, NULL, 0, &needed));
  }
  CHECK(needed > 2);
  /* A report may have grown by the second call. */
  needed += 4096;
  text = malloc(needed);
  CHECK(text != NULL);
  if (plan) {
    OK(symm_plan(comm, NULL, COUNT, SYMM_FLOAT32, SYMM_SUM, text, needed, &again));
    CHECK(strstr(text, "\"algorithm\"") != NULL && strstr(text, "\"reason\"") != NULL);
  } else {
    OK(symm_report(comm, text, needed, &again));
    CHECK(text[0] == '{');
  }
  CHECK(again == strlen(text) + 1);
  free(text);
}

/* Every dtype with every op over ones: sum 2, prod, max, min and avg 1, whatever the format's bits
 * for 1 and 2 are. */
static void check_types(symm_comm* comm) {
  static const struct {
    symm_dtype dtype;
    size_t size;
    uint64_t one, two;
  } types[] = {{SYMM_INT8, 1, 1, 2},
               {SYMM_UINT8, 1, 1, 2},
               {SYMM_INT32, 4, 1, 2},
               {SYMM_UINT32, 4, 1, 2},
               {SYMM_INT64, 8, 1, 2},
               {SYMM_UINT64, 8, 1, 2},
               {SYMM_FLOAT16, 2, 0x3c00, 0x4000},
               {SYMM_FLOAT32, 4, 0x3f800000, 0x40000000},
               {SYMM_FLOAT64, 8, UINT64_C(0x3ff) << 52, UINT64_C(0x400) << 52},
               {SYMM_BFLOAT16, 2, 0x3f80, 0x4000},
               {SYMM_FLOAT8_E4M3, 1, 0x38, 0x40},
               {SYMM_FLOAT8_E5M2, 1, 0x3c, 0x40}};
  static const symm_op ops[] = {SYMM_SUM, SYMM_PROD, SYMM_MAX, SYMM_MIN, SYMM_AVG};
  size_t t, o, i;
  for (t = 0; t < sizeof types / sizeof types[0]; ++t) {
    for (o = 0; o < sizeof ops / sizeof ops[0]; ++o) {
      uint64_t input[8], output[8];
      const uint64_t expected = ops[o] == SYMM_SUM ? types[t].two : types[t].one;
      const size_t size = types[t].size;
      for (i = 0; i < sizeof input / size; ++i) {
        memcpy((char*)input + i * size, &types[t].one,
               size); /* little-endian, as x86 and Arm are */
      }
      OK(symm_all_reduce(comm, input, output, sizeof input / size, types[t].dtype, ops[o], NULL));
      for (i = 0; i < sizeof input / size; ++i) {
        CHECK(memcmp((char*)output + i * size, &expected, size) == 0);
      }
    }
  }
}

static void check_windows(symm_comm* comm, int32_t rank) {
  symm_window *window = NULL, *view = NULL;
  symm_window_options options;
  struct {
    size_t size; /* as much of the struct as this caller knows */
  } shortest;
  char error[256] = "";
  void *mine = NULL, *theirs = NULL, *none = &mine;
  float output[COUNT];
  size_t bytes = 0;
  int i;

  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.error = error;
  options.error_size = sizeof error;
  OK(symm_window_alloc(comm, sizeof output, &options, &window));
  OK(symm_window_size(window, &bytes));
  CHECK(bytes == sizeof output);
  OK(symm_window_data(window, rank, &mine));
  OK(symm_window_data(window, 1 - rank, &theirs));
  CHECK(mine != NULL && theirs != NULL && mine != theirs);
  for (i = 0; i < COUNT; ++i) ((float*)mine)[i] = (float)(rank * COUNT + i);
  OK(symm_comm_barrier(comm, NULL));
  CHECK(((float*)theirs)[7] == (float)((1 - rank) * COUNT + 7));
  OK(symm_window_all_reduce(window, 0, output, COUNT, SYMM_FLOAT32, SYMM_MAX, NULL));
  for (i = 0; i < COUNT; ++i) CHECK(output[i] == (float)(COUNT + i));

  shortest.size = sizeof shortest;
  OK(symm_window_register(comm, mine, bytes, (const symm_window_options*)(const void*)&shortest,
                          &view));
  OK(symm_window_data(view, 1 - rank, &theirs));
  CHECK(((float*)theirs)[7] == (float)((1 - rank) * COUNT + 7));

  /* What fails, fails on every rank, says so in options->error and leaves its output alone. */
  options.flags = SYMM_WINDOW_NCCL;
  CHECK(symm_window_alloc(comm, 64, &options, (symm_window**)(void*)&none) == SYMM_UNSUPPORTED);
  CHECK(none == &mine && strstr(error, "symm_window_alloc") != NULL);

  symm_window_free(view);
  symm_window_free(window);
}

static void check_split(symm_comm* world, int32_t rank) {
  symm_comm *half = NULL, *nobody = world;
  int32_t rank_there = -1, size = 0, blamed = 0;
  float one = 1.0f, two = 0.0f;

  /* Key turns the order round. */
  OK(symm_comm_split(world, 3, -rank, NULL, &half));
  OK(symm_comm_rank(half, &rank_there));
  OK(symm_comm_size(half, &size));
  CHECK(rank_there == 1 - rank && size == RANKS);
  OK(symm_all_reduce(half, &one, &two, 1, SYMM_FLOAT32, SYMM_SUM, NULL));
  CHECK(two == 2.0f);
  OK(symm_comm_check(half, NULL));
  OK(symm_comm_barrier(half, NULL));

  /* Its end is nobody else's. */
  OK(symm_comm_abort(half));
  CHECK(symm_all_reduce(half, &one, &two, 1, SYMM_FLOAT32, SYMM_SUM, NULL) == SYMM_ABORTED);
  CHECK(symm_comm_check(half, &blamed) == SYMM_ABORTED);
  symm_comm_free(half);
  OK(symm_comm_check(world, &blamed));
  CHECK(blamed == -1);

  OK(symm_comm_split(world, SYMM_NO_COLOR, 0, NULL, &nobody));
  CHECK(nobody == NULL);
}

static void* rank_main(void* argument) {
  const int32_t rank = *(const int32_t*)argument;
  symm_comm_options options = comm_options("client");
  symm_comm *comm = NULL, *second = NULL;
  int32_t said = -2;
  float input[COUNT], output[COUNT];
  void* nccl = NULL;
  char error[256] = "";
  int i;

  options.error = error;
  options.error_size = sizeof error;
  OK(symm_comm_create(address, rank, RANKS, SYMM_CPU, &options, &comm));
  OK(symm_comm_rank(comm, &said));
  CHECK(said == rank);
  OK(symm_comm_size(comm, &said));
  CHECK(said == RANKS);
  OK(symm_comm_device(comm, &said));
  CHECK(said == SYMM_CPU);
  check_json(comm, 0);
  check_json(comm, 1);

  for (i = 0; i < COUNT; ++i) input[i] = (float)(rank + i);
  OK(symm_all_reduce(comm, input, output, COUNT, SYMM_FLOAT32, SYMM_SUM, NULL));
  for (i = 0; i < COUNT; ++i) CHECK(output[i] == (float)(2 * i + 1));
  check_types(comm);
  check_windows(comm, rank);
  check_split(comm, rank);

  /* Local errors: told, and nothing changed. */
  CHECK(symm_all_reduce(comm, NULL, output, COUNT, SYMM_FLOAT32, SYMM_SUM, NULL) ==
        SYMM_INVALID_ARGUMENT);
  CHECK(strstr(symm_last_error(), "symm_all_reduce") != NULL);
  CHECK(strstr(symm_last_error(), "input") != NULL);
  CHECK(symm_comm_nccl(comm, &nccl) == SYMM_UNSUPPORTED && nccl == NULL);
  OK(symm_comm_barrier(comm, NULL));
  symm_comm_free(comm);

  /* Without options; then what only this rank's struct says is wrong fails everywhere. */
  OK(symm_comm_create(address, rank, RANKS, SYMM_CPU, NULL, &second));
  symm_comm_free(second);
  if (rank == 1) options.timeout_ms = -1;
  options.name = "refused";
  CHECK(symm_comm_create(address, rank, RANKS, SYMM_CPU, &options, &second) ==
        SYMM_INVALID_ARGUMENT);
  CHECK(strstr(error, "timeout_ms") != NULL);
  return NULL;
}

int main(void) {
  static const symm_status statuses[] = {
      SYMM_OK,          SYMM_INVALID_ARGUMENT, SYMM_OUT_OF_MEMORY,
      SYMM_UNSUPPORTED, SYMM_SYSTEM,           SYMM_CUDA,
      SYMM_NCCL,        SYMM_TIMEOUT,          SYMM_PEER,
      SYMM_MISMATCH,    SYMM_ABORTED,          SYMM_INTERNAL};
  const int32_t header =
      SYMM_VERSION_MAJOR * 1000000 + SYMM_VERSION_MINOR * 1000 + SYMM_VERSION_PATCH;
  pthread_t threads[RANKS];
  int32_t ranks[RANKS];
  size_t needed = 0;
  int i;

  CHECK(symm_version() / 1000000 == SYMM_VERSION_MAJOR);
  for (i = 0; i < (int)(sizeof statuses / sizeof statuses[0]); ++i) {
    CHECK(strcmp(symm_status_name(statuses[i]), "SYMM_UNKNOWN") != 0);
  }
  CHECK(strcmp(symm_status_name(SYMM_TIMEOUT), "SYMM_TIMEOUT") == 0);
  CHECK(strcmp(symm_last_error(), "") == 0);
  check_json(NULL, 0);

  OK(symm_address_create("127.0.0.1", address, sizeof address, &needed));
  CHECK(needed == strlen(address) + 1);
  for (i = 0; i < RANKS; ++i) {
    ranks[i] = i;
    CHECK(pthread_create(&threads[i], NULL, rank_main, &ranks[i]) == 0);
  }
  for (i = 0; i < RANKS; ++i) CHECK(pthread_join(threads[i], NULL) == 0);
  printf("header %d, library %d\n", (int)header, (int)symm_version());
  return 0;
}
