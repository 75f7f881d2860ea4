#define _POSIX_C_SOURCE 200809L

#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "options_help.h"

static void refuse(const char* option, const char* value, const char* remedy) {
  fprintf(stderr, "symm-perf: %s '%s': %s\n", option, value, remedy);
  exit(2);
}

static size_t parse_bytes(const char* option, const char* text) {
  char* end;
  errno = 0;
  unsigned long long value = strtoull(text, &end, 10);
  unsigned shift = 0;
  switch (*end) {
    case 'G':
    case 'g':
      shift += 10; /* fall through */
    case 'M':
    case 'm':
      shift += 10; /* fall through */
    case 'K':
    case 'k':
      shift += 10;
      ++end;
      break;
    default:
      break;
  }
  if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || value == 0 ||
      value > ((unsigned long long)1 << 40) >> shift) {
    refuse(option, text, "a size from 1 to 1024G is expected, for instance 64K");
  }
  return (size_t)(value << shift);
}

static int parse_int(const char* option, const char* text, int most) {
  char* end;
  const long value = strtol(text, &end, 10);
  if (end == text || *end != '\0' || value < 1 || value > most) {
    char remedy[64];
    snprintf(remedy, sizeof remedy, "a number from 1 to %d is expected", most);
    refuse(option, text, remedy);
  }
  return (int)value;
}

/* Calls `each` for every name of a comma-separated list; it returns 0 for a name it does not know.
 */
static void parse_list(const char* option, const char* list, const char* known,
                       int (*each)(struct perf_options*, const char*),
                       struct perf_options* options) {
  const char* at = list;
  for (;;) {
    char name[32];
    const size_t length = strcspn(at, ",");
    snprintf(name, sizeof name, "%.*s", (int)(length < 31 ? length : 31), at);
    if (length > 31 || !each(options, name)) {
      refuse(option, list, known);
    }
    if (at[length] == '\0') {
      return;
    }
    at += length + 1;
  }
}

static int add_dtype(struct perf_options* options, const char* name) {
  const symm_dtype dtype = dtype_by_name(name);
  for (int i = 0; i < options->dtype_count; ++i) {
    if (options->dtypes[i] == dtype) {
      return 1;
    }
  }
  if (dtype == SYMM_DTYPE_NONE) {
    return 0;
  }
  options->dtypes[options->dtype_count++] = dtype;
  return 1;
}

static int add_op(struct perf_options* options, const char* name) {
  const symm_op op = op_by_name(name);
  for (int i = 0; i < options->op_count; ++i) {
    if (options->ops[i] == op) {
      return 1;
    }
  }
  if (op == SYMM_OP_NONE) {
    return 0;
  }
  options->ops[options->op_count++] = op;
  return 1;
}

static int add_form(struct perf_options* options, const char* name) {
  if (strcmp(name, "none") == 0) {
    options->forms |= PERF_NO_FORM;
    return 1;
  }
  if (strcmp(name, "all_reduce") == 0) {
    options->forms |= PERF_ALL_REDUCE;
  } else if (strcmp(name, "window") == 0) {
    options->forms |= PERF_WINDOW;
  } else {
    return 0;
  }
  return 1;
}

static int quiet_notes;

static void note(const char* text) {
  if (!quiet_notes) {
    fprintf(stderr, "symm-perf: note: %s\n", text);
  }
}

static int add_engine(struct perf_options* options, const char* name) {
  if (strcmp(name, "mpi") == 0) {
    options->against_mpi = 2;
  } else if (strcmp(name, "nccl") == 0) {
    options->against_nccl = 2;
  } else if (strcmp(name, "torch") == 0) {
    options->against_torch = 2;
  } else if (strcmp(name, "none") != 0) {
    return 0;
  }
  return 1;
}

static int add_mode(struct perf_options* options, const char* name) {
  const int graph = strcmp(name, "graph") == 0;
  options->modes |= graph ? PERF_GRAPH : PERF_EAGER;
  return graph || strcmp(name, "eager") == 0;
}

static int parse_device(const char* name) {
  const int gpu = strcmp(name, "gpu") == 0;
  if (!gpu && strcmp(name, "cpu") != 0) {
    refuse("--device", name, "cpu and gpu are known");
  }
  return gpu;
}

static void set_defaults(struct perf_options* options) {
  memset(options, 0, sizeof *options);
  options->ranks = 2;
  options->min_bytes = 8;
  options->max_bytes = (size_t)16 << 20;
  options->step = 2;
  options->against_mpi = 1;
  options->against_nccl = 1;
  options->batches = 15;
  options->batch_us = 1000;
  options->timeout_s = 300;
}

static void complete_for_cpu(struct perf_options* options) {
  if (options->behind_producer || (options->forms & PERF_NO_FORM) != 0) {
    refuse("--device", "cpu", "--behind-producer and --form none need --device gpu");
  }
  if (options->modes != 0) {
    note("--mode has no effect on CPU ranks: every call blocks");
  }
  if (options->not_sole) {
    note("--not-sole has no effect on CPU ranks");
  }
  if (options->against_nccl == 2 || options->against_torch == 2) {
    note("nccl and torch are timed on GPUs only; left out");
  }
  if (options->threads && options->against_mpi) {
    if (options->against_mpi == 2) {
      note("MPI's ranks are processes, so it is not timed with --threads");
    }
    options->against_mpi = 0;
  }
  options->against_nccl = 0;
  options->against_torch = 0;
}

static void complete_for_gpu(struct perf_options* options) {
  if (options->dirty) {
    refuse("--device", "gpu", "--dirty is of CPU ranks; --behind-producer is its like on GPUs");
  }
  if (options->against_mpi == 2) {
    note("mpi is timed on CPU ranks only; left out");
  }
  options->against_mpi = 0;
  if (options->modes == 0) {
    options->modes = PERF_GRAPH;
  }
  if (options->behind_producer && (options->modes & PERF_GRAPH) == 0) {
    refuse("--mode", "eager", "--behind-producer needs graph among the modes");
  }
  if ((options->forms & PERF_NO_FORM) != 0 && options->forms != PERF_NO_FORM) {
    refuse("--form", "none", "leaves symm out; no other form goes with it");
  }
  if (options->forms == PERF_NO_FORM && !options->against_nccl && !options->against_torch) {
    refuse("--form", "none", "nothing is left to time: add --against nccl or torch");
  }
}

static void complete(struct perf_options* options) {
  if (options->dtype_count == 0) {
    options->dtypes[options->dtype_count++] = SYMM_FLOAT32;
  }
  if (options->op_count == 0) {
    options->ops[options->op_count++] = SYMM_SUM;
  }
  if (options->forms == 0) {
    options->forms = PERF_ALL_REDUCE;
  }
  if (options->gpu) {
    complete_for_gpu(options);
  } else {
    complete_for_cpu(options);
  }
  for (int i = 0; i < options->dtype_count; ++i) {
    if (options_next_size(options, 0, dtype_size(options->dtypes[i])) == 0) {
      fprintf(stderr, "symm-perf: --min and --max leave no size for %s\n",
              dtype_name(options->dtypes[i]));
      exit(2);
    }
  }
}

void options_parse(int argc, char** argv, int quiet, struct perf_options* options) {
  enum {
    opt_ranks = 256,
    opt_device,
    opt_threads,
    opt_min,
    opt_max,
    opt_dtype,
    opt_op,
    opt_mode,
    opt_form,
    opt_in_place,
    opt_dirty,
    opt_behind_producer,
    opt_not_sole,
    opt_against,
    opt_json,
    opt_plot,
    opt_seed,
    opt_batches,
    opt_quick,
    opt_timeout,
    opt_help,
    opt_version
  };
  static const struct option known[] = {
      {"ranks", required_argument, NULL, opt_ranks},
      {"device", required_argument, NULL, opt_device},
      {"threads", no_argument, NULL, opt_threads},
      {"min", required_argument, NULL, opt_min},
      {"max", required_argument, NULL, opt_max},
      {"dtype", required_argument, NULL, opt_dtype},
      {"op", required_argument, NULL, opt_op},
      {"mode", required_argument, NULL, opt_mode},
      {"form", required_argument, NULL, opt_form},
      {"in-place", no_argument, NULL, opt_in_place},
      {"dirty", no_argument, NULL, opt_dirty},
      {"behind-producer", no_argument, NULL, opt_behind_producer},
      {"not-sole", no_argument, NULL, opt_not_sole},
      {"against", required_argument, NULL, opt_against},
      {"json", optional_argument, NULL, opt_json},
      {"plot", required_argument, NULL, opt_plot},
      {"seed", required_argument, NULL, opt_seed},
      {"batches", required_argument, NULL, opt_batches},
      {"quick", no_argument, NULL, opt_quick},
      {"timeout", required_argument, NULL, opt_timeout},
      {"help", no_argument, NULL, opt_help},
      {"version", no_argument, NULL, opt_version},
      {NULL, 0, NULL, 0},
  };
  quiet_notes = quiet;
  set_defaults(options);
  for (;;) {
    const int option = getopt_long(argc, argv, "h", known, NULL);
    if (option < 0) {
      break;
    }
    switch (option) {
      case opt_ranks:
        options->ranks = parse_int("--ranks", optarg, PERF_MAX_RANKS);
        break;
      case opt_device:
        options->gpu = parse_device(optarg);
        break;
      case opt_threads:
        options->threads = 1;
        break;
      case opt_min:
        options->min_bytes = parse_bytes("--min", optarg);
        break;
      case opt_max:
        options->max_bytes = parse_bytes("--max", optarg);
        break;
      case opt_dtype:
        parse_list("--dtype", optarg, "not a list of element types (see --help)", add_dtype,
                   options);
        break;
      case opt_op:
        parse_list("--op", optarg, "sum, prod, max, min and avg are known", add_op, options);
        break;
      case opt_mode:
        parse_list("--mode", optarg, "graph and eager are known", add_mode, options);
        break;
      case opt_form:
        parse_list("--form", optarg, "all_reduce, window and none are known", add_form, options);
        break;
      case opt_in_place:
        options->in_place = 1;
        break;
      case opt_dirty:
        options->dirty = 1;
        break;
      case opt_behind_producer:
        options->behind_producer = 1;
        break;
      case opt_not_sole:
        options->not_sole = 1;
        break;
      case opt_against:
        options->against_mpi = options->against_nccl = options->against_torch = 0;
        parse_list("--against", optarg, "mpi, nccl, torch and none are known", add_engine, options);
        break;
      case opt_json:
        options->json_path = optarg != NULL ? optarg : "-";
        break;
      case opt_plot:
        options->plot_path = optarg;
        break;
      case opt_seed: {
        char* end;
        errno = 0;
        options->seed = strtoull(optarg, &end, 0);
        options->has_seed = 1;
        if (end == optarg || *end != '\0' || *optarg == '-' || errno != 0) {
          refuse("--seed", optarg, "a number is expected");
        }
        break;
      }
      case opt_batches:
        options->batches = parse_int("--batches", optarg, PERF_MAX_BATCHES);
        break;
      case opt_quick:
        options->batches = 7;
        options->batch_us = 500;
        options->step = 16;
        break;
      case opt_timeout:
        options->timeout_s = parse_int("--timeout", optarg, 1000000);
        break;
      case 'h':
      case opt_help:
        fputs(options_help[0], stdout);
        fputs(options_help[1], stdout);
        exit(0);
      case opt_version:
        printf("symm-perf %d.%d.%d\n", (int)SYMM_VERSION_MAJOR, (int)SYMM_VERSION_MINOR,
               (int)SYMM_VERSION_PATCH);
        exit(0);
      default:
        fputs("Try symm-perf --help.\n", stderr);
        exit(2);
    }
  }
  if (optind < argc) {
    refuse("argument", argv[optind], "symm-perf takes options only (see --help)");
  }
  complete(options);
}

size_t options_next_size(const struct perf_options* options, size_t bytes, size_t element) {
  size_t next = bytes == 0 ? options->min_bytes : bytes * options->step;
  if (bytes == 0) {
    next = next < element ? element : next - next % element;
  }
  return next <= options->max_bytes ? next : 0;
}

int options_cell_count(const struct perf_options* options) {
  int count = 0;
  for (int i = 0; i < options->dtype_count; ++i) {
    const size_t element = dtype_size(options->dtypes[i]);
    for (size_t bytes = options_next_size(options, 0, element); bytes != 0;
         bytes = options_next_size(options, bytes, element)) {
      ++count;
    }
  }
  return count * options->op_count;
}

int options_row_limit(const struct perf_options* options) {
  /* On GPUs symm's two forms, two of NCCL's and three of torch's, each in three modes. */
  return options_cell_count(options) * (options->gpu ? 21 : 3);
}
