/* One rank of an all-reduce, by C that is not linked with libsymm but loads it when it runs.
 *
 *   cc all_reduce.c $(pkg-config --cflags symm) -ldl -o all_reduce
 *   ./all_reduce tcp://127.0.0.1:29500 0 2 & ./all_reduce tcp://127.0.0.1:29500 1 2
 *
 * SYMM_LIBRARY: which library to load ("libsymm.so.0"). The number is the major version: another
 * one may break programs. */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <symm.h>

enum { kCount = 1000 };

/* What dlsym finds. The types are the header's own (typeof: C23, and an extension of GCC and clang
 * long before), so none is written here that could differ. */
static struct {
  __typeof__(symm_status_name)* status_name;
  __typeof__(symm_last_error)* last_error;
  __typeof__(symm_comm_create)* comm_create;
  __typeof__(symm_comm_free)* comm_free;
  __typeof__(symm_window_alloc)* window_alloc;
  __typeof__(symm_window_data)* window_data;
  __typeof__(symm_window_free)* window_free;
  __typeof__(symm_all_reduce)* all_reduce;
  __typeof__(symm_window_all_reduce)* window_all_reduce;
} symm;

static void* find(void* library, const char* name) {
  void* symbol = dlsym(library, name);
  if (symbol == NULL) {
    fprintf(stderr, "all_reduce: %s\n", dlerror());
    exit(1);
  }
  return symbol;
}

static void load(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "all_reduce: %s\n", dlerror());
    exit(1);
  }
  /* ISO C has no conversion from void * to a function pointer; POSIX makes this one work. */
  *(void**)&symm.status_name = find(library, "symm_status_name");
  *(void**)&symm.last_error = find(library, "symm_last_error");
  *(void**)&symm.comm_create = find(library, "symm_comm_create");
  *(void**)&symm.comm_free = find(library, "symm_comm_free");
  *(void**)&symm.window_alloc = find(library, "symm_window_alloc");
  *(void**)&symm.window_data = find(library, "symm_window_data");
  *(void**)&symm.window_free = find(library, "symm_window_free");
  *(void**)&symm.all_reduce = find(library, "symm_all_reduce");
  *(void**)&symm.window_all_reduce = find(library, "symm_window_all_reduce");
}

static void check(symm_status status) {
  if (status != SYMM_OK) {
    fprintf(stderr, "%s: %s\n", symm.status_name(status), symm.last_error());
    exit(1);
  }
}

static int32_t number(const char* text) {
  char* end;
  const long value = strtol(text, &end, 10);
  if (end == text || *end != '\0' || value < INT32_MIN || value > INT32_MAX) {
    fprintf(stderr, "all_reduce: '%s' is not a rank or a size\n", text);
    exit(1);
  }
  return (int32_t)value;
}

static uint64_t fnv1a(const void* data, size_t bytes) {
  const unsigned char* byte = data;
  uint64_t digest = UINT64_C(14695981039346656037);
  for (size_t i = 0; i < bytes; ++i) {
    digest = (digest ^ byte[i]) * UINT64_C(1099511628211);
  }
  return digest;
}

int main(int argc, char** argv) {
  if (argc != 4) {
    fputs("usage: all_reduce ADDRESS RANK SIZE\n", stderr);
    return 1;
  }
  const char* library = getenv("SYMM_LIBRARY");
  load(library != NULL ? library : "libsymm.so.0");
  const int32_t rank = number(argv[2]), size = number(argv[3]);

  const symm_comm_options options = {.size = sizeof options, .timeout_ms = 60000};
  symm_comm* comm;
  check(symm.comm_create(argv[1], rank, size, SYMM_CPU, &options, &comm));

  float x[kCount], sum[kCount];
  for (int i = 0; i < kCount; ++i) {
    x[i] = (float)(1 / (1.0 + i + 1000.0 * rank));
  }
  check(symm.all_reduce(comm, x, sum, kCount, SYMM_FLOAT32, SYMM_SUM, NULL));

  /* The same from a window, memory that every rank sees: no copy on the way in. */
  symm_window* window;
  void* own;
  float again[kCount];
  check(symm.window_alloc(comm, sizeof x, NULL, &window));
  check(symm.window_data(window, rank, &own));
  memcpy(own, x, sizeof x);
  check(symm.window_all_reduce(window, 0, again, kCount, SYMM_FLOAT32, SYMM_SUM, NULL));
  if (memcmp(sum, again, sizeof sum) != 0) {
    fputs("all_reduce: the window's sum has other bits\n", stderr);
    return 1;
  }

  printf("rank %" PRId32 " of %" PRId32 ": sum[0] = %.6f, digest %016" PRIx64 "\n", rank, size,
         sum[0], fnv1a(sum, sizeof sum));
  symm.window_free(window);
  symm.comm_free(comm);
  return 0;
}
