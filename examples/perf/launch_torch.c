#define _GNU_SOURCE /* pipe2 */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launch.h"

/* What torch's symmetric memory adds, and what it adds it in. */
static int is_timed(symm_dtype dtype, symm_op op) {
  return op == SYMM_SUM && (dtype == SYMM_FLOAT32 || dtype == SYMM_BFLOAT16);
}

/* "0:float32:sum:8,1:float32:sum:16": the cells that torch can take part in; to be freed. */
static char* list_cells(const struct perf_options* options) {
  const size_t most = 80;
  char* list = calloc((size_t)options_cell_count(options) + 1, most);
  size_t length = 0;
  int cell = 0;
  for (int d = 0; d < options->dtype_count && list != NULL; ++d) {
    const symm_dtype dtype = options->dtypes[d];
    for (int o = 0; o < options->op_count; ++o) {
      size_t bytes = 0;
      while ((bytes = options_next_size(options, bytes, dtype_size(dtype))) != 0) {
        if (is_timed(dtype, options->ops[o])) {
          length += (size_t)snprintf(list + length, most, "%s%d:%s:%s:%zu", length > 0 ? "," : "",
                                     cell, dtype_name(dtype), op_name(options->ops[o]), bytes);
        }
        ++cell;
      }
    }
  }
  return list;
}

/* A TCP port that nobody listens on now. */
static int free_port(void) {
  struct sockaddr_in address;
  socklen_t size = sizeof address;
  int port = 0;
  const int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  memset(&address, 0, sizeof address);
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (probe >= 0 && bind(probe, (struct sockaddr*)&address, sizeof address) == 0 &&
      getsockname(probe, (struct sockaddr*)&address, &size) == 0) {
    port = ntohs(address.sin_port);
  }
  if (probe >= 0) {
    close(probe);
  }
  return port;
}

static void become_rank(const struct launch* launch, const char* script, const char* cells,
                        int rank, int port) {
  const struct perf_options* options = launch->options;
  char rank_text[16], size_text[16], port_text[16], batches[16], seed[32];
  snprintf(rank_text, sizeof rank_text, "%d", rank);
  snprintf(size_text, sizeof size_text, "%d", options->ranks);
  snprintf(port_text, sizeof port_text, "%d", port);
  snprintf(batches, sizeof batches, "%d", options->batches);
  snprintf(seed, sizeof seed, "%llu", (unsigned long long)(launch->seed & 0x7fffffff));
  setenv("RANK", rank_text, 1);
  setenv("LOCAL_RANK", rank_text, 1);
  setenv("WORLD_SIZE", size_text, 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", port_text, 1);
  const char* modes = options->modes == (PERF_GRAPH | PERF_EAGER) ? "graph,eager"
                      : options->modes == PERF_GRAPH              ? "graph"
                                                                  : "eager";
  execlp("python3", "python3", script, "--cells", cells, "--modes", modes, "--batches", batches,
         "--seed", seed, options->in_place ? "--in-place" : (char*)NULL, (char*)NULL);
  fprintf(stderr, "symm-perf: cannot run python3: %s\n", strerror(errno));
  _exit(127);
}

const char* launch_torch(struct launch* launch) {
  char script[4096];
  int ends[2];
  if (!launch_in_path("python3")) {
    return "python3 is not there";
  }
  if (!launch_find_file("symm-perf-torch.py", "SYMM_PERF_TORCH", script, sizeof script)) {
    return "symm-perf-torch.py is not beside symm-perf (SYMM_PERF_TORCH names another place)";
  }
  char* cells = list_cells(launch->options);
  const int port = free_port();
  if (cells == NULL || port == 0 || pipe2(ends, O_CLOEXEC) != 0) {
    free(cells);
    return "the system gives no memory, port or pipe";
  }
  if (cells[0] == '\0') {
    free(cells);
    close(ends[0]);
    close(ends[1]);
    return "it has sums of float32 and bfloat16 only";
  }
  launch->rows = ends[0];
  launch->silence_s = launch->options->timeout_s;
  launch->name = "torch's rank";
  const pid_t parent = getpid();
  for (int rank = 0; rank < launch->options->ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      launch_become_child(parent, rank == 0 ? ends[1] : -1);
      become_rank(launch, script, cells, rank, port);
    }
    if (child < 0) {
      /* The others wait for it in vain; the silence ends them. */
      launch->silence_s = 1;
      break;
    }
    launch->children[launch->child_count++] = child;
  }
  close(ends[1]);
  free(cells);
  return NULL;
}
