/* What symm-perf shows of its rows: a table, JSON, a plot. */
#ifndef SYMM_PERF_REPORT_H
#define SYMM_PERF_REPORT_H

#include <stdint.h>
#include <stdio.h>

#include "gpu/gpu_machine.h"
#include "machine.h"
#include "options.h"
#include "row.h"

struct report {
  const struct perf_options* options;
  const struct machine* machine;
  uint64_t seed;
  int symm_version;
  char mpi[128];                  /* the MPI library's name; "" where MPI is not timed */
  const struct gpu_machine* gpus; /* NULL: CPU ranks */
  struct row* rows;
  int row_count;
  struct row* torch_rows; /* measured before the others; each joins `rows` with its cell */
  int torch_row_count;
};

/* us of MPI in the row's cell; 0: none. */
double report_mpi_us(const struct report* report, const struct row* row);

void table_header(const struct report* report, FILE* file);
/* The lines of the rows of one cell, which are the last of the report; with the heading where a new
 * table starts. */
void table_cell(const struct report* report, int cell, FILE* file);
/* Mean ratios, and what was wrong. */
void table_footer(const struct report* report, FILE* file);

/* Adds what was wrong, or that nothing was. */
void table_verdict(const struct report* report, FILE* file);

/* The same three of GPU ranks. */
void gpu_table_header(const struct report* report, FILE* file);
void gpu_table_cell(const struct report* report, int cell, FILE* file);
void gpu_table_footer(const struct report* report, FILE* file);

/* The fastest of the others in symm's row's cell and mode; NULL: there is none. */
const struct row* report_best_other(const struct report* report, const struct row* row);

void json_report(const struct report* report, FILE* file);
void plot_report(const struct report* report, FILE* file);

#endif
