#include "samples.h"

#include <stdlib.h>

static int ascending(const void* a, const void* b) {
  const double left = *(const double*)a;
  const double right = *(const double*)b;
  return (left > right) - (left < right);
}

double samples_median(double* samples, size_t count) {
  qsort(samples, count, sizeof *samples, ascending);
  return count % 2 == 1 ? samples[count / 2] : (samples[count / 2 - 1] + samples[count / 2]) / 2;
}

double samples_min(double* samples, size_t count) {
  qsort(samples, count, sizeof *samples, ascending);
  return samples[0];
}

double samples_p99(double* samples, size_t count) {
  qsort(samples, count, sizeof *samples, ascending);
  return samples[(count * 99 + 99) / 100 - 1];
}
