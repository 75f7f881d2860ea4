/* What the ranks of the benchmark share beside the all-reduce that they time: a barrier, small
 * values, a cache line to pass back and forth, and the reference result. It lies in a symm window
 * of its own. */
#ifndef SYMM_PERF_SHARED_H
#define SYMM_PERF_SHARED_H

#include <stddef.h>
#include <stdint.h>

#include "types.h"

struct shared {
  int rank;
  int size;
  int crowded; /* ranks outnumber CPUs: never spin */
  int watch_s; /* watchdog_feed's argument on this rank; 0: another rank of the process does it */
  uint64_t epoch;                        /* of the barrier */
  size_t part_bytes;                     /* of the reference that each rank holds */
  unsigned char* slices[PERF_MAX_RANKS]; /* every rank's copy of the window */
};

/* Bytes of the window where each rank holds `part_bytes` of the reference. */
size_t shared_window_bytes(size_t part_bytes);

void shared_barrier(struct shared* shared);

/* Collective; each returns the same on every rank. */
double shared_max(struct shared* shared, double mine);
uint64_t shared_sum(struct shared* shared, uint64_t mine);

/* One cache line, one way, in ns: neighbouring ranks pass it to each other 300 times, all pairs at
 * once; the slowest pair's. 0 where nothing can be measured: one rank, or a crowded machine. */
double shared_ping_pong(struct shared* shared);

/* This process's part of the reference, and another rank's. */
unsigned char* shared_part(struct shared* shared, int rank);

/* Ends the process with a message when it has not been called again after `seconds`; 0 changes
 * nothing. One thread of a process calls it. */
void watchdog_feed(int seconds);

double now_us(void);

#endif
