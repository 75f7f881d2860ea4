#define _GNU_SOURCE /* sched_setaffinity, CPU sets of any size, RUSAGE_THREAD */

#include "machine.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>

/* The text after "key" and a colon in a file of such lines; 0 if there is none. */
static int read_field(const char* path, const char* key, char* value, size_t size) {
  FILE* file = fopen(path, "r");
  char line[512];
  int found = 0;
  while (file != NULL && !found && fgets(line, sizeof line, file) != NULL) {
    const char* colon = strchr(line, ':');
    if (colon != NULL && strncmp(line, key, strlen(key)) == 0) {
      colon += 1 + strspn(colon + 1, " \t");
      snprintf(value, size, "%.*s", (int)strcspn(colon, "\n"), colon);
      found = 1;
    }
  }
  if (file != NULL) {
    fclose(file);
  }
  return found;
}

/* The number in a file, or `otherwise` where there is none ("max", no such file). */
static unsigned long long read_number(const char* path, unsigned long long otherwise) {
  FILE* file = fopen(path, "r");
  unsigned long long value = otherwise;
  if (file != NULL) {
    if (fscanf(file, "%llu", &value) != 1) {
      value = otherwise;
    }
    fclose(file);
  }
  return value;
}

/* Two CPUs with the same number share a core. A machine that does not say has one CPU a core. */
static long core_of(int cpu) {
  char path[96];
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/core_id", cpu);
  const long core = (long)read_number(path, 1000000ull + (unsigned)cpu);
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/physical_package_id", cpu);
  return core + 10000000l * (long)read_number(path, 0);
}

static void read_cpus(struct machine* machine) {
  static long cores[MACHINE_MAX_CPUS];
  int siblings[MACHINE_MAX_CPUS];
  int sibling_count = 0;
  cpu_set_t* set = CPU_ALLOC(MACHINE_MAX_CPUS);
  const size_t set_size = CPU_ALLOC_SIZE(MACHINE_MAX_CPUS);
  machine->core_count = 0;
  if (set != NULL && sched_getaffinity(0, set_size, set) == 0) {
    for (int cpu = 0; cpu < MACHINE_MAX_CPUS; ++cpu) {
      if (!CPU_ISSET_S((size_t)cpu, set_size, set)) {
        continue;
      }
      const long core = core_of(cpu);
      int known = 0;
      for (int i = 0; i < machine->core_count && !known; ++i) {
        known = cores[i] == core;
      }
      if (known) {
        siblings[sibling_count++] = cpu;
      } else {
        cores[machine->core_count] = core;
        machine->cpus[machine->core_count++] = cpu;
      }
    }
  }
  CPU_FREE(set);
  if (machine->core_count == 0) {
    machine->cpus[machine->core_count++] = 0;
  }
  memcpy(machine->cpus + machine->core_count, siblings, (size_t)sibling_count * sizeof siblings[0]);
  machine->cpu_count = machine->core_count + sibling_count;
}

void machine_read(struct machine* machine) {
  struct utsname name;
  memset(machine, 0, sizeof *machine);
  uname(&name);
  snprintf(machine->system, sizeof machine->system, "%s %s %s", name.sysname, name.release,
           name.machine);
  if (!read_field("/proc/cpuinfo", "model name", machine->cpu, sizeof machine->cpu) &&
      !read_field("/proc/cpuinfo", "CPU part", machine->cpu, sizeof machine->cpu)) {
    snprintf(machine->cpu, sizeof machine->cpu, "%s", name.machine);
  }
  read_cpus(machine);
}

void machine_pin(const struct machine* machine, int rank, int ranks) {
  if (ranks > machine->cpu_count) {
    return;
  }
  cpu_set_t* set = CPU_ALLOC(MACHINE_MAX_CPUS);
  const size_t set_size = CPU_ALLOC_SIZE(MACHINE_MAX_CPUS);
  if (set != NULL) {
    CPU_ZERO_S(set_size, set);
    CPU_SET_S((size_t)machine->cpus[rank], set_size, set);
    sched_setaffinity(0, set_size, set); /* where it is forbidden the scheduler decides */
  }
  CPU_FREE(set);
}

long machine_preemptions(void) {
  struct rusage usage;
  return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
}

size_t machine_memory_available(void) {
  char text[64];
  unsigned long long available = 0;
  if (read_field("/proc/meminfo", "MemAvailable", text, sizeof text)) {
    available = strtoull(text, NULL, 10) * 1024;
  }
  const unsigned long long none = ~0ull;
  const unsigned long long limit = read_number("/sys/fs/cgroup/memory.max", none);
  const unsigned long long used = read_number("/sys/fs/cgroup/memory.current", 0);
  if (limit != none && limit - (used < limit ? used : limit) < available) {
    available = limit - (used < limit ? used : limit);
  }
  return (size_t)available;
}
