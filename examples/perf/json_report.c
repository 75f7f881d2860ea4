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

/* A string, null where it is empty. */
static void write_text(FILE* file, const char* key, const char* text) {
  fprintf(file, ", \"%s\": ", key);
  json_write_string(file, text[0] != '\0' ? text : NULL);
}

static void write_gpus(const struct gpu_machine* gpus, FILE* file) {
  static const struct gpu_machine none;
  gpus = gpus != NULL ? gpus : &none;
  fputs(", \"gpus\": [", file);
  for (int i = 0; i < gpus->count; ++i) {
    fputs(i > 0 ? ", " : "", file);
    json_write_string(file, gpus->names[i]);
  }
  fputs("]", file);
  write_text(file, "driver", gpus->driver);
  write_text(file, "cuda", gpus->cuda);
  write_text(file, "nccl", gpus->nccl);
  write_text(file, "torch", gpus->torch);
}

static void write_machine(const struct report* report, FILE* file) {
  const struct machine* machine = report->machine;
  const struct perf_options* options = report->options;
  fputs("  \"machine\": {\"cpu\": ", file);
  json_write_string(file, machine->cpu);
  fprintf(file, ", \"cores\": %d, \"cpus\": %d, \"system\": ", machine->core_count,
          machine->cpu_count);
  json_write_string(file, machine->system);
  write_gpus(report->gpus, file);
  fputs(", \"mpi\": ", file);
  json_write_string(file, report->mpi[0] != '\0' ? report->mpi : NULL);
  fprintf(file, ", \"symm\": \"%d.%d.%d\", \"floors\": {", report->symm_version / 1000000,
          report->symm_version / 1000 % 1000, report->symm_version % 1000);
  write_figure(file, "ping_pong_ns", median_ping_pong(report));
  for (int i = 0; report->gpus != NULL && i < report->gpus->floor_count; ++i) {
    fputs(", ", file);
    write_figure(file, report->gpus->floors[i].name, report->gpus->floors[i].value);
  }
  fprintf(file, "}},\n  \"run\": {\"ranks\": %d, \"ranks_are\": \"%s\", ", options->ranks,
          options->threads ? "threads" : "processes");
  write_bool(file, "pinned", !options->gpu && options->ranks <= machine->cpu_count);
  if (options->gpu) {
    fputs(", ", file);
    write_bool(file, "sole", !options->not_sole);
    fputs(", ", file);
    write_bool(file, "multicast_off", report->gpus->multicast_off);
  }
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
  if (row->behind_producer) {
    fputs(", \"behind_producer\": true, ", file);
    write_figure(file, "producer_us", row->rewrite_us);
  }
  if (strcmp(row->mode, "host") == 0) {
    fputs(", ", file);
    write_figure(file, "launch_us", row->rewrite_us);
  }
  fprintf(file, ", \"batches\": %d, \"calls\": %d, \"redone\": %d, \"disturbed\": %d, ",
          row->batches, row->calls, row->redone, row->disturbed);
  write_figure(file, "ping_pong_ns", row->ping_pong_ns);
  if (strcmp(row->engine, "symm") == 0 && report->mpi[0] != '\0') {
    const double mpi_us = report_mpi_us(report, row);
    fputs(", ", file);
    write_figure(file, "ratio_to_mpi", mpi_us > 0 ? row->median_us / mpi_us : 0);
  }
  const struct row* other = report->gpus != NULL ? report_best_other(report, row) : NULL;
  if (other != NULL) {
    fputs(", ", file);
    write_figure(file, "ratio_to_best", row->median_us / other->median_us);
    write_text(file, "best", other->engine);
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
