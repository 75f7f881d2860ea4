/* The table of GPU ranks: a line a form and mode of symm's, a column each of the others. */
#include <math.h>
#include <string.h>

#include "report.h"

static const struct {
  const char* engine;
  const char* title;
} columns[] = {
    {"nccl", "nccl"},
    {"nccl_symmetric", "nccl sym"},
    {"torch_one_shot", "torch 1-shot"},
    {"torch_two_shot", "torch 2-shot"},
    {"torch_nccl", "torch nccl"},
};
enum { column_count = sizeof columns / sizeof columns[0] };

static int is_symm(const struct row* row) { return strcmp(row->engine, "symm") == 0; }

/* Whether two rows of one cell can be compared. Behind a producer, mode by mode too: torch's ranks
 * have none. */
static int same_mode(const struct row* a, const struct row* b) {
  return a->cell == b->cell && strcmp(a->mode, b->mode) == 0 &&
         a->behind_producer == b->behind_producer;
}

const struct row* report_best_other(const struct report* report, const struct row* row) {
  const struct row* best = NULL;
  for (int i = 0; i < report->row_count && is_symm(row); ++i) {
    const struct row* other = &report->rows[i];
    if (!is_symm(other) && same_mode(other, row) &&
        (best == NULL || other->median_us < best->median_us)) {
      best = other;
    }
  }
  return best;
}

static int has_engine(const struct row* rows, int count, const char* engine) {
  for (int i = 0; i < count; ++i) {
    if (strcmp(rows[i].engine, engine) == 0) {
      return 1;
    }
  }
  return 0;
}

static int has_column(const struct report* report, int column) {
  return has_engine(report->rows, report->row_count, columns[column].engine) ||
         has_engine(report->torch_rows, report->torch_row_count, columns[column].engine);
}

static void write_floor(const struct report* report, const char* name, const char* text,
                        FILE* file) {
  const double value = gpu_machine_floor(report->gpus, name);
  if (value > 0) {
    fprintf(file, text, value);
  }
}

void gpu_table_header(const struct report* report, FILE* file) {
  const struct perf_options* options = report->options;
  const struct gpu_machine* gpus = report->gpus;
  const char* const placing = options->ranks <= gpus->count ? "one on each GPU" : "sharing GPUs";
  fprintf(file, "symm %d.%d.%d", report->symm_version / 1000000, report->symm_version / 1000 % 1000,
          report->symm_version % 1000);
  fprintf(file, "%s%s%s%s on %d x %s, driver %s, CUDA %s (%s)\n",
          gpus->nccl[0] != '\0' ? ", NCCL " : "", gpus->nccl,
          gpus->torch[0] != '\0' ? ", torch " : "", gpus->torch, gpus->count, gpus->names[0],
          gpus->driver, gpus->cuda, report->machine->system);
  fprintf(file, "%d ranks, %s, %s; %s; SYMM_COMM_SOLE %s; NVLink multicast %s\n", options->ranks,
          options->threads ? "threads" : "processes", placing,
          options->in_place ? "in place" : "out of place",
          options->not_sole ? "left off" : "set (--not-sole leaves it off)",
          gpus->multicast_off ? "off (NCCL_NVLS_ENABLE=0)" : "as NCCL likes");
  fprintf(file,
          "us a call, the slowest rank's; 100 calls a batch (20 from 8 MiB); median of %d "
          "batches; seed %llu\n",
          options->batches, (unsigned long long)report->seed);
  if (options->behind_producer) {
    fprintf(file,
            "Graphs: behind a kernel that writes the input, whose own time (alone) is taken off\n");
  }
  if ((options->modes & PERF_EAGER) != 0) {
    fprintf(file, "Host: what the call takes of the host; alone: the launch of an empty kernel\n");
  }
  fprintf(file, "Floors:");
  write_floor(report, "graph_node_us", " empty node of a graph %.3f us;", file);
  write_floor(report, "graph_node_programmatic_us", " by programmatic launch %.3f us;", file);
  write_floor(report, "launch_us", " host time of an empty launch %.2f us;", file);
  write_floor(report, "launch_programmatic_us", " programmatic %.2f us;", file);
  write_floor(report, "flag_us", " a flag one way %.3f us;", file);
  fprintf(file, "\n");
  write_floor(report, "creation_ms", "Communicator and a window of 64 MiB: %.1f ms", file);
  write_floor(report, "creation_again_ms", ", the next ones %.1f ms\n", file);
}

/* The first row of a cell; row_count: it has none. */
static int first_row(const struct report* report, int cell) {
  int i = 0;
  while (i < report->row_count && report->rows[i].cell != cell) {
    ++i;
  }
  return i;
}

static int shows_alone(const struct report* report) {
  return report->options->behind_producer || (report->options->modes & PERF_EAGER) != 0;
}

static void heading(const struct report* report, const struct row* row, FILE* file) {
  fprintf(file, "\n%s %s\n%10s  %-5s  %-10s  %-24s %10s", row->dtype, row->op, "bytes", "mode",
          "form", "algorithm", "symm");
  for (int i = 0; i < column_count; ++i) {
    if (has_column(report, i)) {
      fprintf(file, " %12s", columns[i].title);
    }
  }
  fprintf(file, " %6s", "ratio");
  if (shows_alone(report)) {
    fprintf(file, " %8s", "alone");
  }
  fprintf(file, " %6s\n", "wrong");
}

/* Three significant digits or whole numbers; a dash where there is no row. */
static void write_us(FILE* file, const struct row* row, int width) {
  if (row == NULL) {
    fprintf(file, " %*s", width, "-");
    return;
  }
  const double us = row->median_us;
  fprintf(file, " %*.*f", width, us < 10 ? 3 : us < 100 ? 2 : us < 1000 ? 1 : 0, us);
}

static const struct row* find_other(const struct report* report, const struct row* like,
                                    const char* engine) {
  for (int i = 0; i < report->row_count; ++i) {
    if (same_mode(&report->rows[i], like) && strcmp(report->rows[i].engine, engine) == 0) {
      return &report->rows[i];
    }
  }
  return NULL;
}

static void write_line(const struct report* report, const struct row* row, FILE* file) {
  const struct row* best = report_best_other(report, row);
  unsigned long long wrong = is_symm(row) ? row->wrong : 0;
  fprintf(file, "%10zu  %-5s  %-10s  %-24s", row->bytes, row->mode, is_symm(row) ? row->form : "-",
          is_symm(row) ? row->algorithm : "-");
  write_us(file, is_symm(row) ? row : NULL, 10);
  for (int i = 0; i < column_count; ++i) {
    if (has_column(report, i)) {
      const struct row* other = find_other(report, row, columns[i].engine);
      write_us(file, other, 12);
      wrong += other != NULL ? other->wrong : 0;
    }
  }
  if (best != NULL) {
    fprintf(file, " %6.2f", row->median_us / best->median_us);
  } else {
    fprintf(file, " %6s", "-");
  }
  if (shows_alone(report) && row->rewrite_us > 0) {
    fprintf(file, " %8.3f", row->rewrite_us);
  } else if (shows_alone(report)) {
    fprintf(file, " %8s", "-");
  }
  fprintf(file, " %6llu\n", wrong);
}

/* Whether an earlier row of the cell gives this one's line: with symm its own rows do, without it
 * the first of each mode. */
static int has_line(const struct report* report, int index) {
  const struct row* row = &report->rows[index];
  if (is_symm(row)) {
    return 0;
  }
  for (int i = 0; i < report->row_count; ++i) {
    if (same_mode(&report->rows[i], row) && (i < index || is_symm(&report->rows[i]))) {
      return 1;
    }
  }
  return 0;
}

void gpu_table_cell(const struct report* report, int cell, FILE* file) {
  const int first = first_row(report, cell);
  if (first == report->row_count) {
    return;
  }
  const struct row* row = &report->rows[first];
  if (first == 0 || strcmp(row[-1].dtype, row->dtype) != 0 || strcmp(row[-1].op, row->op) != 0) {
    heading(report, row, file);
  }
  for (int i = first; i < report->row_count && report->rows[i].cell == cell; ++i) {
    if (!has_line(report, i)) {
      write_line(report, &report->rows[i], file);
    }
  }
  fflush(file);
}

static int same_line(const struct row* a, const struct row* b) {
  return is_symm(a) && is_symm(b) && strcmp(a->form, b->form) == 0 &&
         strcmp(a->mode, b->mode) == 0 && strcmp(a->dtype, b->dtype) == 0 &&
         strcmp(a->op, b->op) == 0;
}

static void write_mean(const struct report* report, int index, FILE* file) {
  const struct row* like = &report->rows[index];
  double logs = 0, most = 0;
  size_t most_bytes = 0;
  int count = 0;
  for (int i = 0; i < report->row_count; ++i) {
    const struct row* row = &report->rows[i];
    const struct row* best = same_line(row, like) ? report_best_other(report, row) : NULL;
    if (i < index && same_line(row, like)) {
      return; /* told already */
    }
    if (best != NULL) {
      const double ratio = row->median_us / best->median_us;
      logs += log(ratio);
      most_bytes = ratio > most ? row->bytes : most_bytes;
      most = ratio > most ? ratio : most;
      ++count;
    }
  }
  if (count > 0) {
    fprintf(file,
            "%s %s %s %s: %.2f of the fastest other's time in the geometric mean of %d sizes, at "
            "most %.2f (%zu bytes)\n",
            like->form, like->mode, like->dtype, like->op, exp(logs / count), count, most,
            most_bytes);
  }
}

void gpu_table_footer(const struct report* report, FILE* file) {
  fputc('\n', file);
  for (int i = 0; i < report->row_count; ++i) {
    if (is_symm(&report->rows[i])) {
      write_mean(report, i, file);
    }
  }
  table_verdict(report, file);
}
