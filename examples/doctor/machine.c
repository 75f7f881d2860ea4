#define _GNU_SOURCE /* CPU sets */

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "check.h"

static const char section[] = "Machine";

static int usable_cpus(void) {
  enum { most_cpus = 8192 };
  cpu_set_t* set = CPU_ALLOC(most_cpus);
  const size_t size = CPU_ALLOC_SIZE(most_cpus);
  int count = 0;
  if (set != NULL && sched_getaffinity(0, size, set) == 0) {
    count = CPU_COUNT_S(size, set);
  }
  CPU_FREE(set);
  return count;
}

static void check_kernel(struct checks* checks) {
  struct utsname name;
  int major = 0, minor = 0;
  uname(&name);
  const int parsed = sscanf(name.release, "%d.%d", &major, &minor) == 2;
  /* memfd_create is of 3.17, pidfd_open of 5.3. */
  const int old = parsed && (major < 3 || (major == 3 && minor < 17));
  checks_add(checks, section, "kernel", old ? CHECK_FAIL : CHECK_OK,
             old ? "symm needs Linux 3.17 or newer" : NULL, "%s %s on %s", name.sysname,
             name.release, name.machine);
}

static void check_cpus(struct checks* checks) {
  const int usable = usable_cpus();
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  if (usable < online) {
    checks_add(checks, section, "CPUs", CHECK_NOTE,
               "more ranks than that take turns; see taskset, cpusets, mpirun --bind-to",
               "%d of the machine's %ld may be used by this process", usable, online);
  } else {
    checks_add(checks, section, "CPUs", CHECK_OK, NULL, "%d, all usable", usable);
  }
  /* A quota below the CPUs stops every rank for the rest of a period once it is used up. */
  char line[64];
  unsigned long long quota, period;
  if (line_of_file("/sys/fs/cgroup/cpu.max", line, sizeof line) &&
      sscanf(line, "%llu %llu", &quota, &period) == 2 && period > 0) {
    const double share = (double)quota / (double)period;
    const int scarce = share < usable;
    checks_add(checks, section, "CPU quota", scarce ? CHECK_WARN : CHECK_OK,
               scarce ? "start no more ranks than the quota has CPUs, or lift it (docker --cpus, "
                        "Kubernetes limits.cpu)"
                      : NULL,
               "the control group may use %.1f CPUs of %d", share, usable);
  }
}

static void check_memory(struct checks* checks) {
  char line[128];
  unsigned long long total_kib = 0, available_kib = 0;
  FILE* file = fopen("/proc/meminfo", "r");
  while (file != NULL && fgets(line, sizeof line, file) != NULL) {
    sscanf(line, "MemTotal: %llu", &total_kib);
    sscanf(line, "MemAvailable: %llu", &available_kib);
  }
  if (file != NULL) {
    fclose(file);
  }
  const double gib = 1024.0 * 1024.0;
  const int scarce = available_kib < 512 * 1024;
  checks_add(checks, section, "memory", scarce ? CHECK_WARN : CHECK_OK,
             scarce ? "large messages need up to 128 MiB of scratch a rank; lower "
                      "symm_comm_options.scratch_bytes"
                    : NULL,
             "%.1f GiB, %.1f GiB available", (double)total_kib / gib, (double)available_kib / gib);

  const unsigned long long none = ~0ull;
  const unsigned long long limit = number_in_file("/sys/fs/cgroup/memory.max", none);
  if (limit != none) {
    const unsigned long long used = number_in_file("/sys/fs/cgroup/memory.current", 0);
    const int tight = limit - (used < limit ? used : limit) < 512ull << 20;
    checks_add(checks, section, "memory limit", tight ? CHECK_WARN : CHECK_OK,
               tight ? "windows and scratch count towards it: raise it, or lower "
                       "symm_comm_options.scratch_bytes"
                     : NULL,
               "the control group may use %.2f GiB and uses %.2f GiB", (double)limit / (1 << 30),
               (double)used / (1 << 30));
  }
  struct rlimit address_space;
  if (getrlimit(RLIMIT_AS, &address_space) == 0 && address_space.rlim_cur != RLIM_INFINITY) {
    checks_add(checks, section, "address space", CHECK_WARN,
               "every rank maps every other rank's windows: ulimit -v unlimited",
               "limited to %.1f GiB", (double)address_space.rlim_cur / (1 << 30));
  }
  if (number_in_file("/proc/sys/vm/overcommit_memory", 0) == 2) {
    checks_add(checks, section, "overcommit", CHECK_NOTE,
               "sysctl vm.overcommit_memory=0 if creation runs out of memory",
               "vm.overcommit_memory is 2: shared memory counts in full when it is mapped");
  }
}

static void check_huge_pages(struct checks* checks) {
  char line[256], chosen[32] = "";
  if (!line_of_file("/sys/kernel/mm/transparent_hugepage/shmem_enabled", line, sizeof line)) {
    checks_add(checks, section, "huge pages", CHECK_NOTE, NULL,
               "this kernel has none for shared memory; windows use small pages");
    return;
  }
  const char* open = strchr(line, '[');
  if (open != NULL) {
    snprintf(chosen, sizeof chosen, "%.*s", (int)strcspn(open + 1, "]"), open + 1);
  }
  /* symm asks for none itself: large windows have them where the machine gives them to all. */
  const int given = strcmp(chosen, "always") == 0 || strcmp(chosen, "within_size") == 0 ||
                    strcmp(chosen, "force") == 0;
  checks_add(checks, section, "huge pages", given ? CHECK_OK : CHECK_NOTE,
             given ? NULL
                   : "windows of many MiB gain by them: echo within_size > "
                     "/sys/kernel/mm/transparent_hugepage/shmem_enabled",
             "for shared memory: %s%s", chosen, given ? "" : "; windows use small pages");
}

void check_machine(struct checks* checks) {
  check_kernel(checks);
  check_cpus(checks);
  check_memory(checks);
  check_huge_pages(checks);
}
