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
}
