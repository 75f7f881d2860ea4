#include "compare.h"

#include <stdlib.h>
#include <string.h>

enum { groups_shown = 4, devices_shown = 8 };

/* Appends as far as it fits. */
static void append(char* text, size_t size, const char* more) {
  const size_t length = strlen(text);
  snprintf(text + length, size - length, "%s", more);
}

void list_ranks(char* text, size_t size, const struct rank_facts* ranks, int count,
                const char* flags) {
  char one[48];
  text[0] = '\0';
  for (int i = 0; i < count; ++i) {
    if (!flags[i]) {
      continue;
    }
    int last = i;
    while (last + 1 < count && flags[last + 1] && ranks[last + 1].rank == ranks[last].rank + 1) {
      ++last;
    }
    snprintf(one, sizeof one, "%s%ld", text[0] != '\0' ? ", " : "", (long)ranks[i].rank);
    append(text, size, one);
    if (last > i) {
      snprintf(one, sizeof one, "%s%ld", last > i + 1 ? "-" : ", ", (long)ranks[last].rank);
      append(text, size, one);
    }
    i = last;
  }
}

typedef const char* (*value_of)(const struct rank_facts* facts);

static const char* device_kind(const struct rank_facts* facts) {
  return facts->has_gpu ? "a GPU" : "the CPU";
}
static const char* symm_of(const struct rank_facts* facts) { return facts->symm; }
static const char* nccl_of(const struct rank_facts* facts) { return facts->nccl; }

/* "A on ranks 0, 1; B on ranks 2, 3", and how many values there are. */
static int group(char* text, size_t size, const struct rank_facts* ranks, int count,
                 value_of value) {
  char* flags = calloc((size_t)count, 2);
  char* done = flags + count;
  char list[128], one[256];
  int groups = 0;
  text[0] = '\0';
  for (int i = 0; flags != NULL && i < count; ++i) {
    if (done[i]) {
      continue;
    }
    for (int j = 0; j < count; ++j) {
      flags[j] = !done[j] && strcmp(value(&ranks[i]), value(&ranks[j])) == 0;
      done[j] = (char)(done[j] | flags[j]);
    }
    if (groups++ < groups_shown) {
      list_ranks(list, sizeof list, ranks, count, flags);
      snprintf(one, sizeof one, "%s%s on rank%s %s", text[0] != '\0' ? "; " : "", value(&ranks[i]),
               strpbrk(list, ",-") != NULL ? "s" : "", list);
      append(text, size, one);
    }
  }
  if (groups > groups_shown) {
    append(text, size, "; ...");
  }
  free(flags);
  return groups;
}

/* ": rank 0 GPU 0 (NVIDIA H200), ..." of the first ranks; "" on CPUs, of which there is no more to
 * say. */
static void list_devices(char* text, size_t size, const struct rank_facts* ranks, int count) {
  char one[192];
  text[0] = '\0';
  for (int i = 0; i < count && ranks[0].has_gpu; ++i) {
    if (i == devices_shown) {
      append(text, size, ", ...");
      break;
    }
    snprintf(one, sizeof one, "%s rank %ld %s", i == 0 ? ":" : ",", (long)ranks[i].rank,
             ranks[i].device);
    append(text, size, one);
  }
}

static void compare_devices(struct checks* checks, const char* section,
                            const struct rank_facts* ranks, int count, const char* everybody) {
  char text[CHECK_TEXT / 2];
  if (group(text, sizeof text, ranks, count, device_kind) == 1) {
    list_devices(text, sizeof text, ranks, count);
    checks_add(checks, section, "devices", CHECK_OK, NULL, "%s would use %s%s", everybody,
               device_kind(&ranks[0]), text);
    return;
  }
  int without = 0;
  while (ranks[without].has_gpu) {
    ++without;
  }
  static const char remedy[] =
      "a communicator's ranks are all on GPUs or all on CPUs: pass SYMM_CPU on every rank, or "
      "give those a GPU that have none (what symm-doctor says of CUDA there; "
      "CUDA_VISIBLE_DEVICES, local rank)";
  checks_add(checks, section, "devices", CHECK_WARN, remedy,
             "SYMM_LOCAL_GPU or else SYMM_CPU would be %s; rank %ld on %s has no GPU: %s", text,
             (long)ranks[without].rank, ranks[without].host, ranks[without].device);
}

static void compare_gpus(struct checks* checks, const char* section, const struct rank_facts* ranks,
                         int count) {
  for (int a = 0; a < count; ++a) {
    for (int b = a + 1; b < count; ++b) {
      if (ranks[a].gpu[0] != '\0' && strcmp(ranks[a].gpu, ranks[b].gpu) == 0) {
        checks_add(checks, section, "shared GPU", CHECK_WARN,
                   "give each rank a GPU of its own: start no more ranks than GPUs, let the "
                   "launcher set a local rank, or CUDA_VISIBLE_DEVICES for each; or set "
                   "SYMM_COMM_SHARE_GPU",
                   "ranks %ld and %ld would both use %s of %s", (long)ranks[a].rank,
                   (long)ranks[b].rank, ranks[a].device, ranks[a].host);
        return;
      }
    }
  }
}

static void compare_versions(struct checks* checks, const char* section, const char* name,
                             const char* remedy, const struct rank_facts* ranks, int count,
                             const char* everybody, value_of value) {
  char text[CHECK_TEXT / 2];
  if (group(text, sizeof text, ranks, count, value) == 1) {
    checks_add(checks, section, name, CHECK_OK, NULL, "%s has %s", everybody, value(&ranks[0]));
  } else {
    checks_add(checks, section, name, CHECK_WARN, remedy, "the ranks differ: %s", text);
  }
}

void compare_ranks(struct checks* checks, const char* section, const struct rank_facts* ranks,
                   int count, const char* everybody) {
  if (count < 1) {
    return;
  }
  compare_devices(checks, section, ranks, count, everybody);
  compare_gpus(checks, section, ranks, count);
  compare_versions(checks, section, "symm of all ranks",
                   "install one version of symm for every rank; LD_LIBRARY_PATH may differ between "
                   "them",
                   ranks, count, everybody, symm_of);
  compare_versions(checks, section, "NCCL of all ranks",
                   "let every rank find one version of NCCL: the same Python environment and "
                   "LD_LIBRARY_PATH on every rank, or options.nccl_path; ranks that use different "
                   "ones, or windows on some only, do not work together",
                   ranks, count, everybody, nccl_of);
}
