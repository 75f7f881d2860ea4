#include <string.h>
#include <symm.h>

#include "../json.h"
#include "check.h"

static const char section[] = "Library";

static void check_version(struct checks* checks) {
  const int version = symm_version();
  const int major = version / 1000000, minor = version / 1000 % 1000, patch = version % 1000;
  const int matches = major == SYMM_VERSION_MAJOR && minor >= SYMM_VERSION_MINOR;
  checks_add(checks, section, "version", matches ? CHECK_OK : CHECK_FAIL,
             matches ? NULL
                     : "another libsymm.so is loaded than this program was built for; look at "
                       "LD_LIBRARY_PATH, or install the two together",
             "%d.%d.%d (this program was built for %d.%d.%d)", major, minor, patch,
             (int)SYMM_VERSION_MAJOR, (int)SYMM_VERSION_MINOR, (int)SYMM_VERSION_PATCH);
}

/* "cuda" or "nccl": {"available": true, "version": ...} or {"available": false, "reason": ...}. */
static void check_part(struct checks* checks, const char* report, const char* key,
                       const char* name) {
  char path[64], available[16], reason[256], version[64];
  snprintf(path, sizeof path, "%s.available", key);
  if (!json_text(report, path, available, sizeof available)) {
    return; /* a library that does not report it */
  }
  snprintf(path, sizeof path, "%s.reason", key);
  json_text(report, path, reason, sizeof reason);
  snprintf(path, sizeof path, "%s.version", key);
  json_text(report, path, version, sizeof version);
  if (strcmp(available, "true") == 0) {
    checks_add(checks, section, name, CHECK_OK, NULL, "available %s", version);
  } else {
    /* Not having GPUs is no illness. */
    checks_add(checks, section, name, CHECK_NOTE, NULL, "not available: %s",
               reason[0] != '\0' ? reason : "no reason given");
  }
}

/* How many GPUs there are, and whether each reaches every other. */
static void check_gpus(struct checks* checks, const char* report) {
  char available[16], count[16], everywhere[16];
  if (!json_text(report, "cuda.available", available, sizeof available) ||
      strcmp(available, "true") != 0 || !json_text(report, "cuda.gpu_count", count, sizeof count) ||
      !json_text(report, "cuda.peer_access_everywhere", everywhere, sizeof everywhere)) {
    return;
  }
  if (strcmp(everywhere, "true") == 0) {
    checks_add(checks, section, "GPUs", CHECK_OK, NULL, "%s, each with access to all others",
               count);
  } else {
    checks_add(checks, section, "GPUs", CHECK_WARN,
               "split communicators by what can reach each other (nvidia-smi topo -p2p rw)",
               "%s, some without access to each other's memory", count);
  }
}

void check_library(struct checks* checks, const char* report, const char* error) {
  char text[128];
  check_version(checks);
  if (report == NULL) {
    checks_add(checks, section, "report", CHECK_FAIL, "this is a bug of symm or of the machine",
               "symm_report failed: %s", error);
    return;
  }
  if (json_text(report, "machine.cpu_level", text, sizeof text)) {
    const int slow = strcmp(text, "x86-64-v2") == 0 || strcmp(text, "baseline") == 0 ||
                     strcmp(text, "x86-64") == 0;
    checks_add(checks, section, "vector level", slow ? CHECK_WARN : CHECK_OK,
               slow ? "reductions run at half speed or less; if this is a virtual machine let it "
                      "have the host's CPU model (AVX2 and F16C)"
                    : NULL,
               "%s", text);
  }
  check_part(checks, report, "cuda", "CUDA");
  check_gpus(checks, report);
  check_part(checks, report, "nccl", "NCCL");
}
