/* NCCL, judged by what symm_report says of it. */
#include <stdlib.h>
#include <string.h>

#include "../json.h"
#include "check.h"

static const char section[] = "NCCL";

/* The first version with windows. */
enum { window_major = 2, window_minor = 27 };

static const char whole[] =
    "that file is no whole NCCL: install it anew (pip install --force-reinstall nvidia-nccl-cu13, "
    "or libnccl2), or name another in options.nccl_path";
static const char cost[] =
    "only ranks whose GPUs cannot reach each other's memory, on several hosts or without peer "
    "access, need it; nothing else is lost";

struct nccl_signs read_nccl_signs(void) {
  struct nccl_signs signs;
  signs.win_enable = getenv("NCCL_WIN_ENABLE");
  signs.cumem_enable = getenv("NCCL_CUMEM_ENABLE");
  return signs;
}

static int is_true(const char* report, const char* path) {
  char text[16];
  return json_text(report, path, text, sizeof text) && strcmp(text, "true") == 0;
}

/* Where no number can be read it is no older than any. */
static int is_older(const char* version) {
  int major, minor;
  return sscanf(version, "%d.%d", &major, &minor) == 2 &&
         (major < window_major || (major == window_major && minor < window_minor));
}

static int is_off(const char* value) {
  return value != NULL && value[0] != '\0' && strtol(value, NULL, 10) == 0;
}

/* What keeps NCCL itself from being used, by the words of the report's reason. */
static void explain_absence(struct checks* checks, const char* report) {
  static const struct {
    const char* words;
    const char* remedy;
    int found; /* there is one, of no use */
  } known[] = {
      {"or newer is needed",
       "update it (pip install -U nvidia-nccl-cu13, or libnccl2), or name a newer file in "
       "options.nccl_path",
       1},
      {"is no NCCL",
       "what lies there under NCCL's name is something else: put NCCL in its place (pip install "
       "nvidia-nccl-cu13), or name it in options.nccl_path",
       1},
      {"has no nccl", whole, 1},
      {"",
       "where it is needed: pip install nvidia-nccl-cu13, or libnccl2, or name the file in "
       "options.nccl_path",
       0},
  };
  char reason[512];
  json_text(report, "nccl.reason", reason, sizeof reason);
  int i = 0;
  while (strstr(reason, known[i].words) == NULL) {
    ++i; /* the last fits all */
  }
  /* Nobody misses it where there are no GPUs. */
  const int hurts = known[i].found && is_true(report, "cuda.available");
  checks_add(checks, section, "NCCL", hurts ? CHECK_WARN : CHECK_NOTE, known[i].remedy,
             "not available: %s; %s", reason[0] != '\0' ? reason : "no reason given", cost);
}

/* Which of NCCL's own switches is off, by variable or by file, and how to turn it on; "" if none.
 */
static void name_switches(const char* reason, const struct nccl_signs* signs, char* remedy,
                          size_t size) {
  const char* const names[] = {"NCCL_WIN_ENABLE", "NCCL_CUMEM_ENABLE"};
  const char* const values[] = {signs->win_enable, signs->cumem_enable};
  remedy[0] = '\0';
  for (int i = 0; i < 2; ++i) {
    const size_t length = strlen(remedy);
    const char* comma = length > 0 ? "; " : "";
    if (is_off(values[i])) {
      snprintf(remedy + length, size - length, "%sunset %s, which is %.16s, on every rank", comma,
               names[i], values[i]);
    } else if (strstr(reason, names[i]) != NULL) {
      snprintf(remedy + length, size - length,
               "%stake %s=0 out of /etc/nccl.conf, ~/.nccl.conf and NCCL_CONF_FILE's file", comma,
               names[i]);
    }
  }
}

static void check_windows(struct checks* checks, const char* report, const char* version,
                          const struct nccl_signs* signs) {
  char reason[512], remedy[CHECK_TEXT];
  if (json_find(report, "nccl.windows") == NULL) {
    return; /* a library that does not report it */
  }
  if (is_true(report, "nccl.windows.available")) {
    checks_add(checks, section, "NCCL windows", CHECK_OK, NULL, "available");
    return;
  }
  json_text(report, "nccl.windows.reason", reason, sizeof reason);
  if (is_older(version)) {
    snprintf(remedy, sizeof remedy,
             "update NCCL to %d.%d or newer (pip install -U nvidia-nccl-cu13, or libnccl2); where "
             "a program loads its own, as PyTorch does, that one counts",
             window_major, window_minor);
  } else if (strstr(reason, "has no nccl") != NULL) {
    snprintf(remedy, sizeof remedy, "%s", whole);
  } else {
    name_switches(reason, signs, remedy, sizeof remedy);
  }
  checks_add(checks, section, "NCCL windows",
             is_true(report, "cuda.available") ? CHECK_WARN : CHECK_NOTE,
             remedy[0] != '\0' ? remedy : "NCCL_DEBUG=INFO makes NCCL say what it lacks",
             "not available: %s; symm maps its windows itself, and NCCL's own kernels for windows "
             "are not used",
             reason[0] != '\0' ? reason : "no reason given");
}

void check_nccl(struct checks* checks, const char* report, const struct nccl_signs* signs) {
  char version[64], path[256], how[64];
  if (report == NULL || json_find(report, "nccl.available") == NULL) {
    return; /* a library that does not report it */
  }
  if (!is_true(report, "nccl.available")) {
    explain_absence(checks, report);
    return;
  }
  json_text(report, "nccl.version", version, sizeof version);
  json_text(report, "nccl.path", path, sizeof path);
  json_text(report, "nccl.how", how, sizeof how);
  checks_add(checks, section, "NCCL", CHECK_OK, NULL, "%s%s%s%s%s", version,
             how[0] != '\0' ? ", " : "", how, path[0] != '\0' ? ": " : "", path);
  check_windows(checks, report, version, signs);
}
