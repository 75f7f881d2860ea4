/* symm-perf: times symm's all-reduce, checks every result, and times MPI beside it. See --help.
 *
 * This process starts the ranks (perf/launch.c), which are this program again or its threads
 * (perf/worker.c), and shows what they measured (perf/measure.c). */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "perf/launch.h"
#include "perf/report.h"

static struct machine machine;
static struct launch launch;

static uint64_t fresh_seed(void) {
  struct timespec now;
  uint64_t seed = 0;
  const int random = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
  if (random < 0 || read(random, &seed, sizeof seed) != (ssize_t)sizeof seed) {
    clock_gettime(CLOCK_REALTIME, &now);
    seed = (uint64_t)now.tv_nsec ^ (uint64_t)now.tv_sec << 20 ^ (uint64_t)getpid() << 44;
  }
  if (random >= 0) {
    close(random);
  }
  return seed >> 16; /* shorter to type in again */
}

/* Input, output, reference and the windows of every rank; symm's own scratch and MPI's come on top.
 */
static void check_memory(const struct perf_options* options) {
  const double buffers = 3 + ((options->forms & PERF_WINDOW) != 0) + 1.0 / options->ranks;
  const double needed = buffers * (double)options->max_bytes * options->ranks;
  const double available = (double)machine_memory_available();
  if (available > 0 && needed > available * 0.9) {
    fprintf(stderr,
            "symm-perf: %d ranks with inputs of up to %zu bytes need about %.1f GiB, %.1f GiB are "
            "free; lower --max or --ranks\n",
            options->ranks, options->max_bytes, needed / (1 << 30), available / (1 << 30));
    exit(1);
  }
}

static FILE* create(const char* path) {
  FILE* file = fopen(path, "w");
  if (file == NULL) {
    fprintf(stderr, "symm-perf: %s: %s\n", path, strerror(errno));
    exit(1);
  }
  return file;
}

static void finish(FILE* file, const char* path) {
  const int failed = ferror(file);
  if (fclose(file) != 0 || failed) {
    fprintf(stderr, "symm-perf: %s cannot be written\n", path);
    exit(1);
  }
}

static void show_progress(const struct perf_options* options, const char* text) {
  int cell;
  char dtype[ROW_NAME], op[ROW_NAME];
  size_t bytes;
  if (sscanf(text, "%d %31s %31s %zu", &cell, dtype, op, &bytes) == 4) {
    fprintf(stderr, "\r\033[K%d of %d: %s %s, %zu bytes", cell + 1, options_cell_count(options),
            dtype, op, bytes);
  }
}

/* The cell that the last row belongs to is complete when another line follows. */
static void show_cell(const struct report* report, FILE* table, int* shown) {
  if (report->row_count > 0 && report->rows[report->row_count - 1].cell != *shown) {
    *shown = report->rows[report->row_count - 1].cell;
    if (table != NULL) {
      if (*shown == 0) {
        table_header(report, table);
      }
      table_cell(report, *shown, table);
    }
  }
}

/* Reads what the ranks say until they end; 1 once everything was measured. */
static int collect(struct report* report, FILE* table, int* started) {
  const int terminal = isatty(STDERR_FILENO);
  int done = 0, shown = -1;
  char line[ROW_LINE];
  while (launch_read_line(&launch, line, sizeof line)) {
    struct row row;
    const int is_row = row_parse(line, &row);
    if (is_row && report->row_count < options_cell_count(report->options) * 3) {
      report->rows[report->row_count++] = row;
    } else if (strncmp(line, WORKER_CELL, strlen(WORKER_CELL)) == 0) {
      if (terminal) {
        fputs("\r\033[K", stderr);
      }
      show_cell(report, table, &shown);
      if (terminal) {
        show_progress(report->options, line + strlen(WORKER_CELL));
      }
    } else if (strncmp(line, WORKER_STARTED, strlen(WORKER_STARTED)) == 0) {
      const char* mpi = line + strlen(WORKER_STARTED);
      snprintf(report->mpi, sizeof report->mpi, "%.127s", strcmp(mpi, "-") == 0 ? "" : mpi);
      *started = 1;
    } else if (strcmp(line, WORKER_DONE) == 0) {
      if (terminal) {
        fputs("\r\033[K", stderr);
      }
      show_cell(report, table, &shown);
      done = 1;
    } else if (line[0] != '\0') {
      fprintf(stderr, "%s\n", line); /* mpirun's own */
    }
  }
  return done && !launch.failed;
}

static void reset_launch(const struct perf_options* options, uint64_t seed, char** argv) {
  memset(&launch, 0, sizeof launch);
  launch.options = options;
  launch.machine = &machine;
  launch.seed = seed;
  launch.argv = argv;
}

/* Runs everything with MPI where that is possible, and without it otherwise. */
static int run(const struct perf_options* options, char** argv, struct report* report,
               FILE* table) {
  char plugin[4096];
  int started = 0;
  reset_launch(options, report->seed, argv);
  if (options->against_mpi) {
    const char* const reason = launch_find_mpi(plugin, sizeof plugin);
    if (reason == NULL) {
      launch.plugin = plugin;
      launch_mpirun(&launch);
      if (collect(report, table, &started)) {
        return 1;
      }
      if (started) {
        return 0;
      }
      fprintf(stderr, "symm-perf: note: mpirun could not start the ranks; going on without MPI\n");
      reset_launch(options, report->seed, argv);
    } else {
      fprintf(stderr, "symm-perf: note: MPI is not timed: %s\n", reason);
    }
  }
  if (options->threads) {
    launch_threads(&launch);
  } else {
    launch_processes(&launch);
  }
  return collect(report, table, &started);
}

int main(int argc, char** argv) {
  static struct perf_options options;
  struct worker worker;
  memset(&worker, 0, sizeof worker);
  const int is_worker = launch_is_worker(&worker);
  options_parse(argc, argv, is_worker, &options);
  if (is_worker) {
    worker.options = &options;
    worker_run(&worker);
    return 0;
  }

  machine_read(&machine);
  check_memory(&options);
  struct report report;
  memset(&report, 0, sizeof report);
  report.options = &options;
  report.machine = &machine;
  report.seed = options.has_seed ? options.seed : fresh_seed();
  report.symm_version = symm_version();
  report.rows = calloc((size_t)options_cell_count(&options) * 3, sizeof *report.rows);
  if (report.rows == NULL) {
    fputs("symm-perf: out of memory\n", stderr);
    return 1;
  }
  const int json_only = options.json_path != NULL && strcmp(options.json_path, "-") == 0;
  /* Created first: nobody likes to learn after minutes that a file cannot be written. */
  FILE* json = options.json_path == NULL ? NULL : json_only ? stdout : create(options.json_path);
  FILE* plot = options.plot_path == NULL ? NULL : create(options.plot_path);
  FILE* table = json_only ? NULL : stdout;

  if (!run(&options, argv, &report, table)) {
    fputs("symm-perf: not everything was measured\n", stderr);
    return 1;
  }
  if (table != NULL) {
    table_footer(&report, table);
  }
  if (json != NULL) {
    json_report(&report, json);
    finish(json, json_only ? "standard output" : options.json_path);
  }
  if (plot != NULL) {
    plot_report(&report, plot);
    finish(plot, options.plot_path);
  }
  unsigned long long wrong = 0;
  for (int i = 0; i < report.row_count; ++i) {
    wrong += report.rows[i].wrong;
  }
  free(report.rows);
  return wrong > 0;
}
