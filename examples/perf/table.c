#include <math.h>
#include <string.h>

#include "report.h"

double report_mpi_us(const struct report* report, const struct row* row) {
  for (int i = 0; i < report->row_count; ++i) {
    const struct row* other = &report->rows[i];
    if (other->cell == row->cell && strcmp(other->engine, "mpi") == 0) {
      return other->median_us;
    }
  }
  return 0;
}

void table_header(const struct report* report, FILE* file) {
  const struct perf_options* options = report->options;
  const struct machine* machine = report->machine;
  const char* const placing =
      options->ranks <= machine->cpu_count ? "one on each CPU" : "more than CPUs";
  fprintf(file, "symm %d.%d.%d%s%s on %s, %d CPUs (%s)\n", report->symm_version / 1000000,
          report->symm_version / 1000 % 1000, report->symm_version % 1000,
          report->mpi[0] != '\0' ? " and " : "", report->mpi, machine->cpu, machine->cpu_count,
          machine->system);
  fprintf(file, "%d ranks, %s, %s; %s%s; median of %d batches; seed %llu\n", options->ranks,
          options->threads ? "threads" : "processes", placing,
          options->in_place ? "in place" : "out of place",
          options->dirty ? ", input rewritten before every call" : "", options->batches,
          (unsigned long long)report->seed);
}

static const struct row* mpi_row(const struct report* report, int cell) {
  for (int i = 0; i < report->row_count; ++i) {
    if (report->rows[i].cell == cell && strcmp(report->rows[i].engine, "mpi") == 0) {
      return &report->rows[i];
    }
  }
  return NULL;
}

/* The first symm row of a cell. */
static int first_row(const struct report* report, int cell) {
  int i = 0;
  while (i < report->row_count && report->rows[i].cell != cell) {
    ++i;
  }
  return i;
}

static int starts_table(const struct report* report, int cell) {
  if (cell == 0) {
    return 1;
  }
  const struct row* before = &report->rows[first_row(report, cell - 1)];
  const struct row* now = &report->rows[first_row(report, cell)];
  return strcmp(before->dtype, now->dtype) != 0 || strcmp(before->op, now->op) != 0;
}

static void heading(const struct report* report, int cell, FILE* file) {
  const struct row* row = &report->rows[first_row(report, cell)];
  const struct row* mpi = mpi_row(report, cell);
  fprintf(file, "\n%s %s", row->dtype, row->op);
  if (mpi != NULL && (strcmp(mpi->dtype, row->dtype) != 0 || strcmp(mpi->op, row->op) != 0)) {
    fprintf(file, " (MPI: %s %s of the same bytes)", mpi->dtype, mpi->op);
  }
  fprintf(file, "\n%10s  %-10s  %-22s %10s", "bytes", "form", "algorithm", "symm us");
  if (report->mpi[0] != '\0') {
    fprintf(file, " %10s %6s", "mpi us", "ratio");
  }
  if (report->options->dirty) {
    fprintf(file, " %10s", "rewrite us");
  }
  fprintf(file, " %6s %12s\n", "wrong", "ping-pong ns");
}

/* Three significant digits or whole numbers, in ten columns. */
static void write_us(FILE* file, double us) {
  const int digits = us < 10 ? 3 : us < 100 ? 2 : us < 1000 ? 1 : 0;
  fprintf(file, " %10.*f", digits, us);
}

void table_cell(const struct report* report, int cell, FILE* file) {
  const struct row* mpi = mpi_row(report, cell);
  if (starts_table(report, cell)) {
    heading(report, cell, file);
  }
  for (int i = first_row(report, cell); i < report->row_count; ++i) {
    const struct row* row = &report->rows[i];
    if (row == mpi) {
      continue;
    }
    fprintf(file, "%10zu  %-10s  %-22s", row->bytes, row->form, row->algorithm);
    write_us(file, row->median_us);
    if (mpi != NULL) {
      write_us(file, mpi->median_us);
      fprintf(file, " %6.2f", row->median_us / mpi->median_us);
    } else if (report->mpi[0] != '\0') {
      fprintf(file, " %10s %6s", "-", "-");
    }
    if (report->options->dirty) {
      write_us(file, row->rewrite_us);
    }
    fprintf(file, " %6llu", row->wrong + (mpi != NULL ? mpi->wrong : 0));
    if (row->ping_pong_ns > 0) {
      fprintf(file, " %12.0f", row->ping_pong_ns);
    } else {
      fprintf(file, " %12s", "-");
    }
    fputc('\n', file);
  }
  fflush(file);
}

/* The geometric mean and the largest of symm's ratios to MPI over one element type, operation and
 * form. */
static void write_mean(const struct report* report, const struct row* like, FILE* file) {
  double logs = 0, most = 0;
  int count = 0;
  for (int i = 0; i < report->row_count; ++i) {
    const struct row* row = &report->rows[i];
    const double mpi_us = report_mpi_us(report, row);
    if (strcmp(row->engine, "symm") == 0 && strcmp(row->dtype, like->dtype) == 0 &&
        strcmp(row->op, like->op) == 0 && strcmp(row->form, like->form) == 0 && mpi_us > 0) {
      const double ratio = row->median_us / mpi_us;
      logs += log(ratio);
      most = ratio > most ? ratio : most;
      ++count;
    }
  }
  if (count > 0) {
    fprintf(file, "%s %s %s: %.2f of MPI's time in the geometric mean of %d sizes, at most %.2f\n",
            like->form, like->dtype, like->op, exp(logs / count), count, most);
  }
}

static int seen_before(const struct report* report, int index) {
  const struct row* row = &report->rows[index];
  for (int i = 0; i < index; ++i) {
    const struct row* other = &report->rows[i];
    if (strcmp(row->engine, other->engine) == 0 && strcmp(row->dtype, other->dtype) == 0 &&
        strcmp(row->op, other->op) == 0 && strcmp(row->form, other->form) == 0) {
      return 1;
    }
  }
  return 0;
}

/* Rows of one cell share their rounds. */
static void write_disturbance(const struct report* report, FILE* file) {
  int disturbed = 0, rounds = 0, cell = -1;
  for (int i = 0; i < report->row_count; ++i) {
    const struct row* row = &report->rows[i];
    if (row->cell != cell) {
      cell = row->cell;
      disturbed += row->disturbed;
      rounds += row->batches;
    }
  }
  if (disturbed > 0) {
    fprintf(
        file,
        "%d of %d rounds were disturbed: a rank lost its CPU to another process, or the ping-pong "
        "changed. Stop what else runs here.\n",
        disturbed, rounds);
  }
}

void table_verdict(const struct report* report, FILE* file) {
  unsigned long long wrong = 0;
  for (int i = 0; i < report->row_count; ++i) {
    wrong += report->rows[i].wrong;
  }
  if (wrong > 0) {
    fprintf(file, "WRONG: %llu elements; run it again with --seed %llu\n", wrong,
            (unsigned long long)report->seed);
  } else {
    fprintf(file, "Every result was right.\n");
  }
}

void table_footer(const struct report* report, FILE* file) {
  fputc('\n', file);
  for (int i = 0; i < report->row_count; ++i) {
    if (strcmp(report->rows[i].engine, "symm") == 0 && !seen_before(report, i)) {
      write_mean(report, &report->rows[i], file);
    }
  }
  write_disturbance(report, file);
  table_verdict(report, file);
}
