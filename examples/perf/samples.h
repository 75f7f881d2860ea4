/* Statistics of repeated timings. */
#ifndef SYMM_PERF_SAMPLES_H
#define SYMM_PERF_SAMPLES_H

#include <stddef.h>

/* Each sorts the samples, of which there is at least one. */
double samples_median(double* samples, size_t count);
double samples_min(double* samples, size_t count);
double samples_p99(double* samples, size_t count); /* at least 99 in 100 are no larger */

#endif
