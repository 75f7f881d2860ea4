/* The ranks of a launcher's job meet by env://, each of them a symm-doctor, and compare what each
 * would use: one process alone cannot see that another is different. */
#define _POSIX_C_SOURCE 200809L

#include <stdlib.h>
#include <string.h>
#include <symm.h>
#include <unistd.h>

#include "../json.h"
#include "compare.h"
#include "part.h"

static const char section[] = "Job (env://)";
static const char met_name[] = "meeting";

/* Starting CUDA may take long where nothing has kept the driver awake. */
enum { meet_ms = 10000, start_cuda_ms = 40000, limit_s = 90 };

static symm_comm_options job_options(const char* name) {
  symm_comm_options options;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.name = name;
  options.timeout_ms = meet_ms;
  options.wait_timeout_ms = start_cuda_ms;
  return options;
}

/* symm_report's JSON, malloc'ed; NULL where there is none. */
static char* report_of(const symm_comm* comm) {
  size_t needed = 0;
  char* report = NULL;
  if (symm_report(comm, NULL, 0, &needed) == SYMM_OK) {
    needed += 4096; /* it may grow meanwhile */
    report = malloc(needed);
    if (report != NULL && symm_report(comm, report, needed, &needed) != SYMM_OK) {
      free(report);
      report = NULL;
    }
  }
  return report;
}

static int is_true(const char* report, const char* path) {
  char text[16];
  return json_text(report, path, text, sizeof text) && strcmp(text, "true") == 0;
}

/* Whether SYMM_LOCAL_GPU works here, by a world of one on it. */
static void try_gpu(const char* report, struct rank_facts* facts) {
  char address[SYMM_ADDRESS_SIZE], path[64], name[64];
  size_t needed;
  int32_t ordinal = -1;
  symm_comm* comm = NULL;
  const symm_comm_options options = job_options("symm-doctor GPU");
  if (!is_true(report, "cuda.available")) {
    json_text(report, "cuda.reason", facts->device, sizeof facts->device);
    return;
  }
  if (symm_address_create("127.0.0.1", address, sizeof address, &needed) != SYMM_OK ||
      symm_comm_create(address, 0, 1, SYMM_LOCAL_GPU, &options, &comm) != SYMM_OK) {
    snprintf(facts->device, sizeof facts->device, "%s", symm_last_error());
    return;
  }
  if (symm_comm_device(comm, &ordinal) == SYMM_OK) {
    facts->has_gpu = 1;
    snprintf(path, sizeof path, "cuda.gpus.%d.uuid", (int)ordinal);
    json_text(report, path, facts->gpu, sizeof facts->gpu);
    snprintf(path, sizeof path, "cuda.gpus.%d.name", (int)ordinal);
    json_text(report, path, name, sizeof name);
    snprintf(facts->device, sizeof facts->device, "GPU %d (%s)", (int)ordinal, name);
  }
  symm_comm_free(comm);
}

static void describe_nccl(const char* report, struct rank_facts* facts) {
  char version[32];
  if (!is_true(report, "nccl.available")) {
    snprintf(facts->nccl, sizeof facts->nccl, "none");
    return;
  }
  json_text(report, "nccl.version", version, sizeof version);
  snprintf(facts->nccl, sizeof facts->nccl, "%s%s", version,
           is_true(report, "nccl.windows.available") ? "" : " without windows");
}

/* Nothing but its rank where there is no report. */
static void describe_this_rank(struct rank_facts* facts, int32_t rank) {
  char* report = report_of(NULL);
  const int version = (int)symm_version();
  memset(facts, 0, sizeof *facts);
  facts->rank = rank;
  snprintf(facts->symm, sizeof facts->symm, "%d.%d.%d", version / 1000000, version / 1000 % 1000,
           version % 1000);
  if (report != NULL) {
    json_text(report, "machine.host", facts->host, sizeof facts->host);
    describe_nccl(report, facts);
    try_gpu(report, facts);
    free(report);
  }
}

/* The facts of all ranks of `comm`, which are on one host, malloc'ed; NULL if it failed. Each adds
 * its own to zeros. */
static struct rank_facts* gather(symm_comm* comm, const struct rank_facts* mine, int count) {
  int32_t rank = 0;
  struct rank_facts* all = calloc((size_t)count, sizeof *all);
  if (all == NULL || symm_comm_rank(comm, &rank) != SYMM_OK) {
    free(all);
    return NULL;
  }
  all[rank] = *mine;
  if (symm_all_reduce(comm, all, all, (size_t)count * sizeof *all, SYMM_UINT8, SYMM_SUM, NULL) !=
      SYMM_OK) {
    free(all);
    return NULL;
  }
  return all;
}

/* A color for symm_comm_split: equal for equal texts (FNV-1a). */
static int32_t color_of(const char* text) {
  uint32_t hash = 2166136261u;
  for (; *text != '\0'; ++text) {
    hash = (hash ^ (unsigned char)*text) * 16777619u;
  }
  return (int32_t)(hash & 0x7fffffff);
}

/* How many ranks say the same as this one; 0 if it failed. CPU ranks of several hosts can split and
 * no more, and this is all that a split tells. */
static int count_equals(symm_comm* comm, const char* text) {
  symm_comm* equals = NULL;
  int32_t count = 0;
  if (symm_comm_split(comm, color_of(text), 0, NULL, &equals) != SYMM_OK ||
      symm_comm_size(equals, &count) != SYMM_OK) {
    count = 0;
  }
  symm_comm_free(equals);
  return count;
}

static void compare_hosts(struct checks* checks, symm_comm* comm, const struct rank_facts* mine,
                          int size, int here) {
  const struct {
    const char* what;
    const char* value;
  } all[] = {
      {"device", mine->has_gpu ? "a GPU" : "the CPU"}, {"symm", mine->symm}, {"NCCL", mine->nccl}};
  char differing[CHECK_TEXT / 2] = "";
  checks_add(checks, section, "hosts", CHECK_WARN,
             "split communicators by host; where the ranks are on one host after all, give them "
             "one network name space (docker --network host, or one pod)",
             "%d of the %d ranks are on this host: CPU ranks of several hosts can meet, split and "
             "use barriers, and share no memory",
             here, size);
  for (size_t i = 0; i < sizeof all / sizeof all[0]; ++i) {
    const int equals = count_equals(comm, all[i].value);
    const size_t length = strlen(differing);
    if (equals == 0) {
      checks_add(checks, section, "other hosts", CHECK_FAIL,
                 "what the message says; then start again", "%s", symm_last_error());
      return;
    }
    if (equals < size) {
      snprintf(differing + length, sizeof differing - length,
               "%s%s (%s here) is another on %d of %d ranks", length > 0 ? "; " : "", all[i].what,
               all[i].value, size - equals, size);
    }
  }
  if (differing[0] != '\0') {
    checks_add(checks, section, "other hosts", CHECK_WARN,
               "look at what symm-doctor says on the other hosts, and make them equal", "%s",
               differing);
  } else {
    checks_add(checks, section, "other hosts", CHECK_OK, NULL,
               "their ranks would use the same as this host's");
  }
}

/* The ranks that share this one's memory. */
static int split_by_host(symm_comm* comm, symm_comm** host) {
  char host_id[64] = "";
  char* report = report_of(comm);
  if (report != NULL && !is_true(report, "communicator.one_host")) {
    json_text(report, "machine.host_id", host_id, sizeof host_id);
  }
  free(report);
  return symm_comm_split(comm, color_of(host_id), 0, NULL, host) == SYMM_OK;
}

static void compare(struct checks* checks, symm_comm* comm, int size) {
  struct rank_facts mine;
  symm_comm* host = NULL;
  int32_t here = 0, rank = 0;
  struct rank_facts* all = NULL;
  symm_comm_rank(comm, &rank);
  if (split_by_host(comm, &host) && symm_comm_size(host, &here) == SYMM_OK) {
    /* After whatever has a short deadline: a rank without CUDA has nothing to start. */
    describe_this_rank(&mine, rank);
    all = gather(host, &mine, here);
  }
  if (all == NULL) {
    checks_add(checks, section, "comparison", CHECK_FAIL, "what the message says; then start again",
               "%s", symm_last_error());
  } else {
    compare_ranks(checks, section, all, here,
                  here < size ? "every rank of this host" : "every rank");
    if (here < size) {
      compare_hosts(checks, comm, &mine, size, here);
    }
  }
  free(all);
  symm_comm_free(host);
}

static void explain_failure(struct checks* checks, symm_status status) {
  checks_add(checks, section, met_name, CHECK_FAIL,
             status == SYMM_INVALID_ARGUMENT
                 ? "put right what the message names: the launcher's variables and SYMM_TOKEN must "
                   "agree on every rank, and each rank be there once"
                 : "start symm-doctor as every rank of the job (mpirun -n 2 symm-doctor, torchrun "
                   "--nproc-per-node 2 --no-python symm-doctor) and see what the missing ranks "
                   "say; if no job is meant unset the launcher's variables",
             "%s", symm_last_error());
}

int job_part(void) {
  static struct checks checks;
  symm_comm* comm = NULL;
  int32_t size = 0;
  /* Another layout of the facts is another meeting. */
  const symm_comm_options options = job_options("symm-doctor 1");
  alarm(limit_s); /* whatever happens */
  const double begin = now_ms();
  const symm_status status =
      symm_comm_create("env://", SYMM_FROM_ADDRESS, SYMM_FROM_ADDRESS, SYMM_CPU, &options, &comm);
  if (status != SYMM_OK) {
    explain_failure(&checks, status);
  } else {
    symm_comm_size(comm, &size);
    checks_add(&checks, section, met_name, CHECK_OK, NULL,
               size > 1 ? "all %d ranks met in %.0f ms" : "a world of %d, made in %.0f ms",
               (int)size, now_ms() - begin);
    compare(&checks, comm, (int)size);
    symm_comm_free(comm);
  }
  return !part_say_findings(&checks);
}

int check_job(struct checks* checks) {
  const int before = checks->count;
  part_run_findings(checks, section, "job");
  for (int i = before; i < checks->count; ++i) {
    if (strcmp(checks->list[i].name, met_name) == 0 && checks->list[i].status == CHECK_OK) {
      return 1;
    }
  }
  return 0;
}
