#define _POSIX_C_SOURCE 200809L

#include "engine.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../json.h"

static __thread int thread_rank = -1;

void fail_rank_name(int rank) { thread_rank = rank; }

void fail_rank(const char* format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  fprintf(stderr, "symm-perf: rank %d: %s\n", thread_rank, text);
  fflush(stderr);
  /* Not exit: other ranks may be threads that are using what its handlers would take down. */
  _Exit(1);
}

void check(symm_status status) {
  if (status != SYMM_OK) {
    fail_rank("%s", symm_last_error());
  }
}

void engine_call(const struct engine* engine) {
  const struct problem* problem = &engine->problem;
  switch (engine->kind) {
    case ENGINE_ALL_REDUCE:
      check(symm_all_reduce(engine->comm, engine->input, engine->output, problem->count,
                            problem->dtype, problem->op, NULL));
      break;
    case ENGINE_WINDOW:
      check(symm_window_all_reduce(engine->window, 0, engine->output, problem->count,
                                   problem->dtype, problem->op, NULL));
      break;
    default: {
      const int error = engine->mpi->all_reduce(engine->input, engine->output, problem->count,
                                                problem->dtype, problem->op);
      if (error != 0) {
        fail_rank("MPI_Allreduce failed with MPI's error %d", error);
      }
    }
  }
}

void engine_rewrite(const struct engine* engine) {
  unsigned char* at = engine->input;
  size_t left = engine->bytes;
  for (; left > engine->tile_bytes; left -= engine->tile_bytes, at += engine->tile_bytes) {
    memcpy(at, engine->tile, engine->tile_bytes);
  }
  memcpy(at, engine->tile, left);
}

const char* engine_name(const struct engine* engine) {
  return engine->kind == ENGINE_MPI ? "mpi" : "symm";
}

const char* engine_form(const struct engine* engine) {
  return engine->kind == ENGINE_WINDOW ? "window" : "all_reduce";
}

void engine_plan(symm_comm* comm, symm_window* window, const struct problem* problem, char* buffer,
                 size_t size) {
  size_t needed = 0;
  check(symm_plan(comm, window, problem->count, problem->dtype, problem->op, NULL, 0, &needed));
  char* plan = malloc(needed);
  if (plan == NULL) {
    fail_rank("out of memory");
  }
  check(
      symm_plan(comm, window, problem->count, problem->dtype, problem->op, plan, needed, &needed));
  if (!json_text(plan, "algorithm", buffer, size) || buffer[0] == '\0') {
    snprintf(buffer, size, "-");
  }
  /* Rows travel as words. */
  for (char* at = buffer; *at != '\0'; ++at) {
    *at = *at == ' ' ? '_' : *at;
  }
  free(plan);
}

void engine_algorithm(const struct engine* engine, char* buffer, size_t size) {
  snprintf(buffer, size, "-");
  if (engine->kind != ENGINE_MPI) {
    engine_plan(engine->comm, engine->window, &engine->problem, buffer, size);
  }
}
