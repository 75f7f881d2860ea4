/* One measured line: what a rank process tells symm-perf over a pipe, as text, since mpirun may put
 * its own lines between. torch_ranks.py writes the same lines. */
#ifndef SYMM_PERF_ROW_H
#define SYMM_PERF_ROW_H

#include <stddef.h>
#include <stdio.h>

enum { ROW_NAME = 32, ROW_LINE = 1024 };

struct row {
  int cell; /* rows of one cell (dtype, op, bytes) were measured in alternation */
  char engine[ROW_NAME];
  char form[ROW_NAME];
  char mode[ROW_NAME];
  char dtype[ROW_NAME];
  char op[ROW_NAME];
  char algorithm[ROW_NAME]; /* "-" where the engine does not say */
  int ranks;
  size_t bytes;
  int in_place;
  int dirty;
  int behind_producer; /* GPUs: a kernel writes the input before every call */
  double median_us;
  double min_us;
  double p99_us;
  /* Of what comes with a call, alone: rewriting the input, the producer, or, in mode host, the
   * launch of an empty kernel. 0: nothing does. */
  double rewrite_us;
  double ping_pong_ns; /* median beside the batches; 0: not measured */
  int calls;           /* in a batch */
  int batches;
  int redone; /* rounds that were done again: the ping-pong had changed, or a rank had lost its CPU
               */
  int disturbed; /* rounds that were kept all the same */
  unsigned long long wrong;
};

/* One line, flushed. */
void row_write(FILE* file, const struct row* row);

/* 0: the line is none that row_write wrote. */
int row_parse(const char* line, struct row* row);

#endif
