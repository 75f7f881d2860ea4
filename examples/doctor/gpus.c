/* GPUs, judged by what symm_report says of them. */
#define _POSIX_C_SOURCE 200809L

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../json.h"
#include "check.h"

static const char section[] = "GPUs";

enum { most_gpus = 64 };

/* Why there are none, by the words of the report's reason. */
enum cause { NO_DRIVER, OLD_DRIVER, NO_GPU, NO_KERNELS, OTHER };

static enum cause cause_of(const char* reason) {
  static const struct {
    const char* words;
    enum cause cause;
  } known[] = {{"no NVIDIA driver", NO_DRIVER},      {"driver is for CUDA", OLD_DRIVER},
               {"libcuda.so.1 has no ", OLD_DRIVER}, {"no GPU is visible", NO_GPU},
               {"CUDA_ERROR_NO_DEVICE", NO_GPU},     {"CUDA_ERROR_INVALID_DEVICE", NO_GPU},
               {"no GPU kernels", NO_KERNELS},       {"build of symm has no", NO_KERNELS}};
  for (size_t i = 0; i < sizeof known / sizeof known[0]; ++i) {
    if (strstr(reason, known[i].words) != NULL) {
      return known[i].cause;
    }
  }
  return OTHER;
}

static int count_pci_devices(void) {
  static const char devices[] = "/sys/bus/pci/devices";
  char path[512], text[64];
  int count = 0;
  DIR* directory = opendir(devices);
  const struct dirent* entry;
  while (directory != NULL && (entry = readdir(directory)) != NULL) {
    snprintf(path, sizeof path, "%s/%s/vendor", devices, entry->d_name);
    if (!line_of_file(path, text, sizeof text) || strcmp(text, "0x10de") != 0) {
      continue;
    }
    snprintf(path, sizeof path, "%s/%s/class", devices, entry->d_name);
    count += line_of_file(path, text, sizeof text) && strncmp(text, "0x03", 4) == 0; /* display */
  }
  if (directory != NULL) {
    closedir(directory);
  }
  return count;
}

struct gpu_signs read_gpu_signs(void) {
  struct gpu_signs signs;
  signs.visible_devices = getenv("CUDA_VISIBLE_DEVICES");
  signs.pci_devices = count_pci_devices();
  signs.kernel_driver = access("/proc/driver/nvidia/version", F_OK) == 0;
  return signs;
}

/* NULL: there is no GPU to be used, and nothing to be done. */
static const char* remedy_of(enum cause cause, const struct gpu_signs* signs) {
  const int has_gpu = signs->pci_devices > 0 || signs->kernel_driver;
  switch (cause) {
    case NO_DRIVER:
      if (signs->kernel_driver) {
        return "the kernel has the driver, so its library libcuda.so.1 is what is missing: in a "
               "container use the NVIDIA container toolkit (docker --gpus all, "
               "NVIDIA_DRIVER_CAPABILITIES=compute,utility), elsewhere install the driver's "
               "libraries or name their directory in LD_LIBRARY_PATH";
      }
      return has_gpu ? "install NVIDIA's driver for CUDA 13 (580 or newer); nvidia-smi must work"
                     : NULL;
    case OLD_DRIVER:
      return "install a newer NVIDIA driver: 580 or newer is for CUDA 13 (the first libcuda.so.1 "
             "of LD_LIBRARY_PATH counts); until then ranks use SYMM_CPU";
    case NO_GPU:
      if (signs->visible_devices != NULL) {
        return "unset CUDA_VISIBLE_DEVICES, or list in it the GPUs that this rank may use, as "
               "nvidia-smi -L numbers them";
      }
      return has_gpu ? "nvidia-smi must list the GPU here; in a container start it with GPUs "
                       "(docker --gpus all), under Slurm ask for them (srun --gpus-per-node)"
                     : NULL;
    case NO_KERNELS:
      return has_gpu ? "install or build a libsymm with GPU support: cmake -DSYMM_CUDA=ON with a "
                       "CUDA 13 compiler"
                     : NULL;
    case OTHER:
      break;
  }
  return "nvidia-smi must work here; after an update of the driver the machine must be restarted";
}

static void explain_absence(struct checks* checks, const char* report,
                            const struct gpu_signs* signs) {
  char reason[512], detail[CHECK_TEXT];
  json_text(report, "cuda.reason", reason, sizeof reason);
  const enum cause cause = cause_of(reason);
  const char* remedy = remedy_of(cause, signs);
  snprintf(detail, sizeof detail, "not available: %s",
           reason[0] != '\0' ? reason : "no reason given");
  const size_t length = strlen(detail);
  if (cause == NO_GPU && signs->visible_devices != NULL) {
    snprintf(detail + length, sizeof detail - length,
             "; CUDA_VISIBLE_DEVICES is '%.64s', which leaves none", signs->visible_devices);
  } else if (signs->pci_devices > 0) {
    snprintf(detail + length, sizeof detail - length, "; the machine has %d of NVIDIA's GPUs",
             signs->pci_devices);
  }
  /* Not having GPUs is no illness. */
  checks_add(checks, section, "CUDA", remedy != NULL ? CHECK_WARN : CHECK_NOTE,
             remedy != NULL ? remedy : "nothing is to be done: ranks use SYMM_CPU", "%s", detail);
}

static long number_at(const char* report, const char* path, long otherwise) {
  char text[32];
  return json_text(report, path, text, sizeof text) ? strtol(text, NULL, 10) : otherwise;
}

/* reaches[a][b]: GPU a sees GPU b's memory. */
static void read_access(const char* report, int count, char reaches[most_gpus][most_gpus]) {
  char path[64];
  memset(reaches, 0, (size_t)most_gpus * most_gpus);
  for (int gpu = 0; gpu < count; ++gpu) {
    for (int i = 0; i < most_gpus; ++i) {
      snprintf(path, sizeof path, "cuda.gpus.%d.peer_access.%d", gpu, i);
      const long other = number_at(report, path, -1);
      if (other < 0) {
        break;
      }
      if (other < most_gpus) {
        reaches[gpu][other] = 1;
      }
    }
  }
}

static void check_peers(struct checks* checks, const char* report, int count) {
  char reaches[most_gpus][most_gpus];
  char pairs[CHECK_TEXT / 2] = "";
  int cut_off = 0;
  read_access(report, count, reaches);
  for (int a = 0; a < count; ++a) {
    for (int b = a + 1; b < count; ++b) {
      if (reaches[a][b] && reaches[b][a]) {
        continue;
      }
      const size_t length = strlen(pairs);
      if (length + sizeof ", 63 and 63, ..." > sizeof pairs) {
        if (cut_off++ == 0) {
          strcat(pairs, ", ...");
        }
        continue;
      }
      snprintf(pairs + length, sizeof pairs - length, "%s%d and %d", length > 0 ? ", " : "", a, b);
    }
  }
  if (pairs[0] == '\0') {
    checks_add(checks, section, "peer access", CHECK_OK, NULL,
               count > 1 ? "each GPU reaches every other one's memory" : "one GPU: none is needed");
    return;
  }
  checks_add(checks, section, "peer access", CHECK_WARN,
             "split communicators by what reaches each other (nvidia-smi topo -p2p rw), or choose "
             "such GPUs by CUDA_VISIBLE_DEVICES; a virtual machine or PCIe access control (ACS) "
             "may forbid what the hardware can",
             "no access to each other's memory: GPUs %s; ranks on them cannot share windows, "
             "and need NCCL for all-reduces",
             pairs);
}

static void check_integrated(struct checks* checks, const char* report, int count) {
  char path[64], name[128], integrated[16], found[CHECK_TEXT / 2] = "";
  for (int gpu = 0; gpu < count; ++gpu) {
    snprintf(path, sizeof path, "cuda.gpus.%d.integrated", gpu);
    if (!json_text(report, path, integrated, sizeof integrated) ||
        strcmp(integrated, "true") != 0) {
      continue;
    }
    snprintf(path, sizeof path, "cuda.gpus.%d.name", gpu);
    json_text(report, path, name, sizeof name);
    const size_t length = strlen(found);
    snprintf(found + length, sizeof found - length, "%sGPU %d (%s)", length > 0 ? ", " : "", gpu,
             name);
  }
  if (found[0] != '\0') {
    checks_add(checks, section, "integrated GPUs", CHECK_WARN,
               "use SYMM_CPU, or another GPU: by its ordinal, or by CUDA_VISIBLE_DEVICES",
               "%s: other processes cannot map an integrated GPU's memory, so no rank can be on it",
               found);
  }
}

static void list_gpus(struct checks* checks, const char* report, long count) {
  char path[64], name[128], version[32], list[CHECK_TEXT / 2] = "";
  json_text(report, "cuda.version", version, sizeof version);
  for (int gpu = 0; gpu < count && gpu < most_gpus; ++gpu) {
    snprintf(path, sizeof path, "cuda.gpus.%d.name", gpu);
    json_text(report, path, name, sizeof name);
    const size_t length = strlen(list);
    snprintf(list + length, sizeof list - length, "%s%d %s", length > 0 ? ", " : "", gpu, name);
  }
  checks_add(checks, section, "CUDA", CHECK_OK, NULL, "driver for CUDA %s, GPUs: %s", version,
             list);
}

void check_gpus(struct checks* checks, const char* report, const struct gpu_signs* signs) {
  char available[16];
  if (report == NULL || !json_text(report, "cuda.available", available, sizeof available)) {
    return; /* a library that does not report it */
  }
  if (strcmp(available, "true") != 0) {
    explain_absence(checks, report, signs);
    return;
  }
  const long count = number_at(report, "cuda.gpu_count", 0);
  const int seen = count < most_gpus ? (int)count : most_gpus;
  list_gpus(checks, report, count);
  check_peers(checks, report, seen);
  check_integrated(checks, report, seen);
}
