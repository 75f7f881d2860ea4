/* symm-doctor: what symm finds on this machine, and what to do about each thing that is not as it
 * should be. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <symm.h>

#include "doctor/check.h"

static const char help[] =
    "usage: symm-doctor [--json] [--no-trials]\n"
    "\n"
    "Looks at the library, the machine and this process's environment, lets two threads and two\n"
    "processes meet, and says what to do about each thing that is not as it should be.\n"
    "\n"
    "  --json        one JSON object: schema, ok, checks (section, name, status, detail,\n"
    "                remedy), and symm_report's own object as report\n"
    "  --no-trials   start no ranks\n"
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

static void print_json(const struct checks* checks, const char* report) {
  printf("{\n  \"schema\": 1,\n  \"ok\": %s,\n  \"checks\": ",
         checks_count(checks, CHECK_FAIL) == 0 ? "true" : "false");
  checks_print_json(checks, stdout);
  printf(",\n  \"report\": %s\n}\n", report != NULL ? report : "null");
}

static void print_text(const struct checks* checks) {
  printf("symm-doctor\n");
  checks_print(checks, stdout);
  const int failures = checks_count(checks, CHECK_FAIL);
  const int warnings = checks_count(checks, CHECK_WARN);
  printf("\n%s: %d failed, %d warnings, %d in order\n",
         failures > 0 ? "symm cannot work here yet" : "symm works here", failures, warnings,
         checks_count(checks, CHECK_OK));
}

int main(int argc, char** argv) {
  static struct checks checks;
  int json = 0, trials = 1;
  trial_run_if_asked();
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
  char* report = read_report();
  check_library(&checks, report, symm_last_error());
  check_machine(&checks);
  check_system(&checks);
  check_launcher(&checks);
  if (trials) {
    check_trials(&checks);
  }
  if (json) {
    print_json(&checks, report);
  } else {
    print_text(&checks);
  }
  free(report);
  return checks_count(&checks, CHECK_FAIL) > 0;
}
