/* Two ranks meet, all-reduce in private memory and in a window, and leave: what every use of symm
 * needs. */
#define _POSIX_C_SOURCE 200809L

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <symm.h>
#include <unistd.h>

#include "part.h"

static const char section[] = "Trials";

enum { ranks = 2, elements = 100000, limit_ms = 10000 };

/* `failure` says what went wrong; "" if nothing. */
struct rank_trial {
  const char* address;
  int rank;
  char failure[CHECK_TEXT];
};

static int succeeded(struct rank_trial* trial, symm_status status) {
  if (status != SYMM_OK) {
    snprintf(trial->failure, sizeof trial->failure, "rank %d: %s", trial->rank, symm_last_error());
  }
  return status == SYMM_OK;
}

/* Rank r has r + 1 everywhere: the sum is 3. */
static void fill(float* values, int rank) {
  for (int i = 0; i < elements; ++i) {
    values[i] = (float)(rank + 1);
  }
}

static int is_sum(struct rank_trial* trial, const float* values) {
  for (int i = 0; i < elements; ++i) {
    if (values[i] != 3) {
      snprintf(trial->failure, sizeof trial->failure, "rank %d: element %d of the sum is %g, not 3",
               trial->rank, i, (double)values[i]);
      return 0;
    }
  }
  return 1;
}

static void use_window(struct rank_trial* trial, symm_comm* comm, float* values) {
  symm_window* window = NULL;
  void* mine = NULL;
  if (succeeded(trial, symm_window_alloc(comm, elements * sizeof(float), NULL, &window)) &&
      succeeded(trial, symm_window_data(window, trial->rank, &mine))) {
    fill(mine, trial->rank);
    memset(values, 0, elements * sizeof *values);
    if (succeeded(trial, symm_window_all_reduce(window, 0, values, elements, SYMM_FLOAT32, SYMM_SUM,
                                                NULL))) {
      is_sum(trial, values);
    }
  }
  if (window != NULL) {
    symm_window_free(window);
  }
}

static void* run_rank(void* argument) {
  struct rank_trial* trial = argument;
  symm_comm_options options;
  symm_comm* comm = NULL;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.name = "symm-doctor";
  options.timeout_ms = limit_ms;
  options.wait_timeout_ms = limit_ms;
  float* values = malloc(elements * sizeof *values);
  if (values == NULL) {
    snprintf(trial->failure, sizeof trial->failure, "out of memory");
    return NULL;
  }
  if (succeeded(trial,
                symm_comm_create(trial->address, trial->rank, ranks, SYMM_CPU, &options, &comm))) {
    fill(values, trial->rank);
    if (succeeded(trial,
                  symm_all_reduce(comm, values, values, elements, SYMM_FLOAT32, SYMM_SUM, NULL)) &&
        is_sum(trial, values)) {
      use_window(trial, comm, values);
    }
    symm_comm_free(comm);
  }
  free(values);
  return NULL;
}

static int create_address(char* address, size_t size, char* failure) {
  size_t needed;
  if (symm_address_create("127.0.0.1", address, size, &needed) != SYMM_OK) {
    snprintf(failure, CHECK_TEXT, "%s", symm_last_error());
    return 0;
  }
  return 1;
}

static void run_threads(char* failure) {
  char address[SYMM_ADDRESS_SIZE];
  struct rank_trial trials[ranks];
  pthread_t threads[ranks];
  int started = 0;
  if (!create_address(address, sizeof address, failure)) {
    return;
  }
  for (; started < ranks; ++started) {
    memset(&trials[started], 0, sizeof trials[started]);
    trials[started].address = address;
    trials[started].rank = started;
    const int error = pthread_create(&threads[started], NULL, run_rank, &trials[started]);
    if (error != 0) {
      snprintf(failure, CHECK_TEXT, "pthread_create: %s", strerror(error));
      break; /* the other gives up at its deadline */
    }
  }
  for (int i = 0; i < started; ++i) {
    pthread_join(threads[i], NULL);
    if (failure[0] == '\0') {
      memcpy(failure, trials[i].failure, CHECK_TEXT);
    }
  }
}

int trial_part(const char* part, const char* address) {
  struct rank_trial trial;
  memset(&trial, 0, sizeof trial);
  alarm(3 * limit_ms / 1000); /* whatever happens */
  if (strcmp(part, "threads") == 0) {
    run_threads(trial.failure);
  } else {
    trial.rank = atoi(part);
    trial.address = address;
    run_rank(&trial);
  }
  if (trial.failure[0] == '\0') {
    return 0;
  }
  part_say(trial.failure);
  return 1;
}

/* Says in `failure` what the first that failed has said. */
static void run_processes(const char* const* parts, int count, const char* address, char* failure) {
  char end[CHECK_TEXT];
  char* said = parts_run(parts, count, address, end);
  snprintf(failure, CHECK_TEXT, "%s", said != NULL && said[0] != '\0' ? said : end);
  free(said);
}

static void add_result(struct checks* checks, const char* name, const char* failure, double ms) {
  if (failure[0] == '\0') {
    checks_add(checks, section, name, CHECK_OK, NULL, "met, all-reduced and left in %.0f ms", ms);
  } else {
    checks_add(checks, section, name, CHECK_FAIL,
               "put right what failed above first; the message says what this needs", "%s",
               failure);
  }
}

void check_trials(struct checks* checks) {
  static const char* const threads[] = {"threads"};
  static const char* const processes[] = {"0", "1"};
  char failure[CHECK_TEXT] = "";
  char address[SYMM_ADDRESS_SIZE];
  double begin = now_ms();
  run_processes(threads, 1, "-", failure);
  add_result(checks, "two threads", failure, now_ms() - begin);

  failure[0] = '\0';
  begin = now_ms();
  if (create_address(address, sizeof address, failure)) {
    run_processes(processes, ranks, address, failure);
  }
  add_result(checks, "two processes", failure, now_ms() - begin);
}
