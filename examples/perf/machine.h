/* The machine that figures come from, and where its ranks run. */
#ifndef SYMM_PERF_MACHINE_H
#define SYMM_PERF_MACHINE_H

#include <stddef.h>

enum { MACHINE_MAX_CPUS = 4096 };

struct machine {
  char cpu[128];              /* the model's name */
  char system[256];           /* kernel and its architecture */
  int cpu_count;              /* CPUs this process may run on */
  int core_count;             /* cores they belong to */
  int cpus[MACHINE_MAX_CPUS]; /* one of every core first, then their siblings */
};

void machine_read(struct machine* machine);

/* Binds the calling thread to cpus[rank], so that every rank has its own; does nothing when ranks
 * outnumber CPUs. */
void machine_pin(const struct machine* machine, int rank, int ranks);

/* How often the scheduler has taken the CPU from the calling thread for another one. */
long machine_preemptions(void);

/* Memory that can be had without swapping, of the machine and of the control group; 0: unknown. */
size_t machine_memory_available(void);

#endif
