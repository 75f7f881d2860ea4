/* symm-doctor: what symm finds on this machine, and what to do about each thing that is not as it
 * should be. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <symm.h>

#include "doctor/check.h"
#include "doctor/part.h"

static const char help[] =
    "usage: symm-doctor [--json] [--no-trials]\n"
    "\n"
    "Looks at the library, the machine and this process's environment, lets two threads and two\n"
    "processes meet, and says what to do about each thing that is not as it should be.\n"
    "Under a launcher, as every rank of a job, it lets the ranks meet by env:// and compares\n"
    "what each of them would use: mpirun -n 2 symm-doctor, or torchrun --nproc-per-node 2\n"
    "--no-python symm-doctor.\n"
    "\n"
    "  --json        one JSON object: schema, ok, rank and size (null without a launcher),\n"
    "                checks (section, name, status, detail, remedy), and symm_report's own\n"
    "                object as report\n"
    "  --no-trials   start no ranks and meet none\n"
    "  --help, --version\n"
    "\n"
    "Exit status: 0, 1 when symm cannot work here, 2 for wrong arguments.\n";

/* symm_report(NULL), malloc'ed; NULL if it failed. */
static char* read_report(void) {
  size_t needed;
  if (symm_report(NULL, NULL, 0, &needed) != SYMM_OK) {
    return NULL;
  }
  char* report = malloc(needed);
  if (report != NULL && symm_report(NULL, report, needed, &needed) != SYMM_OK) {
    free(report);
    return NULL;
  }
  return report;
}

static void print_json(const struct checks* checks, const struct claim* claim, const char* report) {
  char rank[48] = "\"rank\": null,\n  \"size\": null";
  if (claim->usable) {
    snprintf(rank, sizeof rank, "\"rank\": %ld,\n  \"size\": %ld", claim->rank, claim->size);
  }
  printf("{\n  \"schema\": 1,\n  \"ok\": %s,\n  %s,\n  \"checks\": ",
         checks_count(checks, CHECK_FAIL) == 0 ? "true" : "false", rank);
  checks_print_json(checks, stdout);
  printf(",\n  \"report\": %s\n}\n", report != NULL ? report : "null");
}

static void print_text(const struct checks* checks, const struct claim* claim) {
  printf("symm-doctor");
  if (claim->usable) {
    printf(", rank %ld of %ld", claim->rank, claim->size);
  }
  printf("\n");
  checks_print(checks, stdout);
  const int failures = checks_count(checks, CHECK_FAIL);
  const int warnings = checks_count(checks, CHECK_WARN);
  printf("\n%s: %d failed, %d warnings, %d in order\n",
         failures > 0 ? "symm cannot work here yet" : "symm works here", failures, warnings,
         checks_count(checks, CHECK_OK));
}

/* A rank 0 that is there now would be taken for whatever has the port: the ranks meet first. */
static void check_meeting(struct checks* checks, const struct claim* claim, int trials) {
  static struct checks job;
  /* One alone needs nobody, at no place. */
  const int met = trials && check_job(&job) && claim->size > 1;
  if (claim->has_address) {
    check_place(checks, claim, met);
  }
  checks_append(checks, &job);
}

static int run_part(const char* part, const char* address) {
  return strcmp(part, "job") == 0     ? job_part()
         : strcmp(part, "place") == 0 ? place_part()
                                      : trial_part(part, address);
}

int main(int argc, char** argv) {
  static struct checks checks;
  struct claim claim;
  int json = 0, trials = 1;
  const char* address;
  const char* part = part_of_this_process(&address);
  if (part != NULL) {
    return run_part(part, address);
  }
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "--json") == 0) {
      json = 1;
    } else if (strcmp(argv[i], "--no-trials") == 0) {
      trials = 0;
    } else if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
      fputs(help, stdout);
      return 0;
    } else if (strcmp(argv[i], "--version") == 0) {
      printf("symm-doctor %d.%d.%d\n", (int)SYMM_VERSION_MAJOR, (int)SYMM_VERSION_MINOR,
             (int)SYMM_VERSION_PATCH);
      return 0;
    } else {
      fprintf(stderr, "symm-doctor: unknown argument '%s'\n%s", argv[i], help);
      return 2;
    }
  }
  /* Reports of several ranks come out of one launcher: each in one piece. */
  static char output[1 << 17];
  setvbuf(stdout, output, _IOFBF, sizeof output);
  const struct gpu_signs gpu_signs = read_gpu_signs();
  const struct nccl_signs nccl_signs = read_nccl_signs();
  char* report = read_report();
  check_library(&checks, report, symm_last_error());
  check_gpus(&checks, report, &gpu_signs);
  check_nccl(&checks, report, &nccl_signs);
  check_machine(&checks);
  check_system(&checks);
  check_launcher(&checks, report, &claim);
  if (claim.usable) {
    check_meeting(&checks, &claim, trials);
  }
  if (trials) {
    check_trials(&checks);
  }
  if (json) {
    print_json(&checks, &claim, report);
  } else {
    print_text(&checks, &claim);
  }
  free(report);
  return checks_count(&checks, CHECK_FAIL) > 0;
}
