#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../json.h"
#include "report.h"

static void write_bool(FILE* file, const char* key, int value) {
  fprintf(file, "\"%s\": %s", key, value ? "true" : "false");
}

/* null where there is no figure. */
static void write_figure(FILE* file, const char* key, double value) {
  if (value > 0 && isfinite(value)) {
    fprintf(file, "\"%s\": %.6g", key, value);
  } else {
    fprintf(file, "\"%s\": null", key);
  }
}

static int ascending(const void* a, const void* b) {
  const double left = *(const double*)a;
  const double right = *(const double*)b;
  return (left > right) - (left < right);
}

/* Median over all cells of the ping-pong beside them. */
static double median_ping_pong(const struct report* report) {
  double* samples = malloc(((size_t)report->row_count + 1) * sizeof *samples);
  int count = 0;
  for (int i = 0; i < report->row_count && samples != NULL; ++i) {
    if (report->rows[i].ping_pong_ns > 0) {
      samples[count++] = report->rows[i].ping_pong_ns;
    }
  }
  double median = 0;
  if (count > 0) {
    qsort(samples, (size_t)count, sizeof *samples, ascending);
    median = samples[count / 2];
  }
  free(samples);
  return median;
}

static void write_machine(const struct report* report, FILE* file) {
  const struct machine* machine = report->machine;
  const struct perf_options* options = report->options;
  fputs("  \"machine\": {\"cpu\": ", file);
  json_write_string(file, machine->cpu);
  fprintf(file, ", \"cores\": %d, \"cpus\": %d, \"system\": ", machine->core_count,
          machine->cpu_count);
  json_write_string(file, machine->system);
  fputs(", \"gpus\": [], \"driver\": null, \"nccl\": null, \"mpi\": ", file);
  json_write_string(file, report->mpi[0] != '\0' ? report->mpi : NULL);
  fprintf(file, ", \"symm\": \"%d.%d.%d\", \"floors\": {", report->symm_version / 1000000,
          report->symm_version / 1000 % 1000, report->symm_version % 1000);
  write_figure(file, "ping_pong_ns", median_ping_pong(report));
  fprintf(file, "}},\n  \"run\": {\"ranks\": %d, \"ranks_are\": \"%s\", ", options->ranks,
          options->threads ? "threads" : "processes");
  write_bool(file, "pinned", options->ranks <= machine->cpu_count);
  fprintf(file, ", \"seed\": %llu},\n", (unsigned long long)report->seed);
}

static void write_row(const struct report* report, const struct row* row, FILE* file) {
  fprintf(file,
          "    {\"engine\": \"%s\", \"form\": \"%s\", \"mode\": \"%s\", \"ranks\": %d, "
          "\"dtype\": \"%s\", \"op\": \"%s\", \"bytes\": %zu, \"algorithm\": ",
          row->engine, row->form, row->mode, row->ranks, row->dtype, row->op, row->bytes);
  json_write_string(file, strcmp(row->algorithm, "-") == 0 ? NULL : row->algorithm);
  fputs(", ", file);
  write_figure(file, "median_us", row->median_us);
  fputs(", ", file);
  write_figure(file, "min_us", row->min_us);
  fputs(", ", file);
  write_figure(file, "p99_us", row->p99_us);
  fprintf(file, ", \"wrong\": %llu, ", row->wrong);
  write_bool(file, "in_place", row->in_place);
  fputs(", ", file);
  write_bool(file, "dirty", row->dirty);
  if (row->dirty) {
    fputs(", ", file);
    write_figure(file, "rewrite_us", row->rewrite_us);
  }
  fprintf(file, ", \"batches\": %d, \"calls\": %d, \"redone\": %d, \"disturbed\": %d, ",
          row->batches, row->calls, row->redone, row->disturbed);
  write_figure(file, "ping_pong_ns", row->ping_pong_ns);
  if (strcmp(row->engine, "symm") == 0 && report->mpi[0] != '\0') {
    const double mpi_us = report_mpi_us(report, row);
    fputs(", ", file);
    write_figure(file, "ratio_to_mpi", mpi_us > 0 ? row->median_us / mpi_us : 0);
  }
  fputc('}', file);
}

void json_report(const struct report* report, FILE* file) {
  fputs("{\n", file);
  write_machine(report, file);
  fputs("  \"results\": [\n", file);
  for (int i = 0; i < report->row_count; ++i) {
    write_row(report, &report->rows[i], file);
    fputs(i + 1 < report->row_count ? ",\n" : "\n", file);
  }
  fputs("  ]\n}\n", file);
}
