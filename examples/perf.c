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

#include "perf/gpu/nccl.h"
#include "perf/launch.h"
#include "perf/report.h"

static struct machine machine;
static struct launch launch;
static struct gpu_machine gpus;

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

static void add_row(struct report* report, const struct row* row) {
  if (report->row_count < options_row_limit(report->options)) {
    report->rows[report->row_count++] = *row;
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

/* Takes in torch's rows of a cell whose others are all there, and shows it. */
static void finish_cell(struct report* report, int cell, FILE* table) {
  const int gpu = report->options->gpu;
  for (int i = 0; i < report->torch_row_count; ++i) {
    if (report->torch_rows[i].cell == cell) {
      add_row(report, &report->torch_rows[i]);
    }
  }
  if (table != NULL && report->row_count > 0) {
    if (cell == 0) {
      (gpu ? gpu_table_header : table_header)(report, table);
    }
    (gpu ? gpu_table_cell : table_cell)(report, cell, table);
  }
}

/* Reads what the ranks say until they end; 1 once everything was measured. */
static int collect(struct report* report, FILE* table, int* started) {
  const int terminal = isatty(STDERR_FILENO);
  int done = 0, cell = -1;
  char line[ROW_LINE];
  while (launch_read_line(&launch, line, sizeof line)) {
    struct row row;
    if (row_parse(line, &row)) {
      add_row(report, &row);
    } else if (strncmp(line, WORKER_CELL, strlen(WORKER_CELL)) == 0 ||
               strcmp(line, WORKER_DONE) == 0) {
      done = strcmp(line, WORKER_DONE) == 0;
      if (terminal) {
        fputs("\r\033[K", stderr);
      }
      if (cell >= 0) {
        finish_cell(report, cell, table);
      }
      if (!done) {
        cell = atoi(line + strlen(WORKER_CELL));
      }
      if (!done && terminal) {
        show_progress(report->options, line + strlen(WORKER_CELL));
      }
    } else if (strncmp(line, WORKER_STARTED, strlen(WORKER_STARTED)) == 0) {
      const char* mpi = line + strlen(WORKER_STARTED);
      snprintf(report->mpi, sizeof report->mpi, "%.127s", strcmp(mpi, "-") == 0 ? "" : mpi);
      *started = 1;
    } else if (strncmp(line, WORKER_FLOOR, strlen(WORKER_FLOOR)) == 0) {
      gpu_machine_add_floor(&gpus, line + strlen(WORKER_FLOOR));
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

/* Before any CUDA call: GPU ranks that are to be timed need GPUs, which this says at once, and
 * threads where ranks share them. */
static void prepare_gpus(struct perf_options* options) {
  char text[4096];
  /* Each rank's stream needs a hardware queue of its own: 8 unless told, 32 at most. */
  if (options->ranks > 8) {
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  }
  if (!gpu_machine_read(&gpus, text, sizeof text)) {
    fprintf(stderr, "symm-perf: no GPU: %s\n", text);
    exit(1);
  }
  if (options->ranks > gpus.count) {
    if (!options->threads) {
      fprintf(stderr, "symm-perf: note: %d ranks share %d GPU%s as threads of one process\n",
              options->ranks, gpus.count, gpus.count == 1 ? "" : "s");
      options->threads = 1;
    }
    if (options->against_nccl == 2 || options->against_torch == 2) {
      fputs("symm-perf: note: nccl and torch need a GPU for every rank; left out\n", stderr);
    }
    if (options->forms == PERF_NO_FORM) {
      fputs("symm-perf: nothing is left to time\n", stderr);
      exit(1);
    }
    options->against_nccl = options->against_torch = 0;
  }
  if (options->against_nccl) {
    char reason[512] = "libnccl.so.2 is not found (SYMM_PERF_NCCL names it)";
    const struct nccl* nccl =
        nccl_find(text, sizeof text) ? nccl_load(text, reason, sizeof reason) : NULL;
    nccl_version_text(nccl, gpus.nccl, sizeof gpus.nccl);
    if (nccl == NULL) {
      fprintf(stderr, "symm-perf: note: NCCL is not timed: %s\n", reason);
    }
    setenv("SYMM_PERF_NCCL", nccl != NULL ? text : "", 1); /* what the ranks load */
  }
}

/* torch's ranks, to their end, before the others start. */
static void run_torch(const struct perf_options* options, char** argv, struct report* report) {
  const int limit = options_row_limit(options);
  char line[ROW_LINE];
  reset_launch(options, report->seed, argv);
  report->torch_rows = calloc((size_t)limit, sizeof *report->torch_rows);
  const char* const reason = report->torch_rows == NULL ? "out of memory" : launch_torch(&launch);
  if (reason != NULL) {
    fprintf(stderr, "symm-perf: note: torch is not timed: %s\n", reason);
    return;
  }
  while (launch_read_line(&launch, line, sizeof line)) {
    struct row row;
    if (row_parse(line, &row) && report->torch_row_count < limit) {
      report->torch_rows[report->torch_row_count++] = row;
    } else if (strncmp(line, "@torch ", 7) == 0) {
      snprintf(gpus.torch, sizeof gpus.torch, "%.63s", line + 7);
    } else if (strncmp(line, "@note ", 6) == 0) {
      fprintf(stderr, "symm-perf: note: %s\n", line + 6);
    } else {
      fprintf(stderr, "%s\n", line);
    }
  }
  if (launch.failed) {
    fputs("symm-perf: note: torch's ranks failed; what they measured before is shown\n", stderr);
  }
}

/* Runs everything with MPI where that is possible, and without it otherwise. */
static int run(const struct perf_options* options, char** argv, struct report* report,
               FILE* table) {
  char plugin[4096];
  int started = 0;
  if (options->against_torch) {
    run_torch(options, argv, report);
  }
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
  if (options.gpu) {
    prepare_gpus(&options);
  } else {
    check_memory(&options);
  }
  struct report report;
  memset(&report, 0, sizeof report);
  report.options = &options;
  report.machine = &machine;
  report.seed = options.has_seed ? options.seed : fresh_seed();
  report.symm_version = symm_version();
  report.gpus = options.gpu ? &gpus : NULL;
  report.rows = calloc((size_t)options_row_limit(&options), sizeof *report.rows);
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
    (options.gpu ? gpu_table_footer : table_footer)(&report, table);
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
  free(report.torch_rows);
  return wrong > 0;
}
