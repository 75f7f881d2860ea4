#define _POSIX_C_SOURCE 200809L

#include "nccl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
  const char* name;
  size_t place;
  int optional;
} symbols[] = {
    {"ncclGetVersion", offsetof(struct nccl, version), 0},
    {"ncclGetUniqueId", offsetof(struct nccl, unique_id), 0},
    {"ncclCommInitRank", offsetof(struct nccl, init_rank), 0},
    {"ncclCommDestroy", offsetof(struct nccl, destroy), 0},
    {"ncclCommAbort", offsetof(struct nccl, abort), 0},
    {"ncclGetErrorString", offsetof(struct nccl, error_text), 0},
    {"ncclGetLastError", offsetof(struct nccl, last_error), 0},
    {"ncclAllReduce", offsetof(struct nccl, all_reduce), 0},
    {"ncclMemAlloc", offsetof(struct nccl, memory_alloc), 1},
    {"ncclMemFree", offsetof(struct nccl, memory_free), 1},
    {"ncclCommWindowRegister", offsetof(struct nccl, window_register), 1},
    {"ncclCommWindowDeregister", offsetof(struct nccl, window_deregister), 1},
};
enum { symbol_count = sizeof symbols / sizeof symbols[0] };

/* PyTorch's copy lies where the loader does not look. */
static int find_in_python(char* path, size_t size) {
  FILE* output = popen(
      "python3 -c 'import importlib.util as u; s = u.find_spec(\"nvidia.nccl\");"
      " print(list(s.submodule_search_locations)[0])' 2>/dev/null",
      "r");
  char folder[2048] = "";
  if (output != NULL) {
    if (fgets(folder, sizeof folder, output) == NULL) {
      folder[0] = '\0';
    }
    pclose(output);
  }
  folder[strcspn(folder, "\n")] = '\0';
  snprintf(path, size, "%s/lib/libnccl.so.2", folder);
  return folder[0] != '\0' && access(path, R_OK) == 0;
}

int nccl_find(char* path, size_t size) {
  const char* named = getenv("SYMM_PERF_NCCL");
  if (named != NULL && *named != '\0') {
    snprintf(path, size, "%s", named);
    return 1;
  }
  void* object = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (object != NULL) {
    dlclose(object);
    snprintf(path, size, "libnccl.so.2");
    return 1;
  }
  return find_in_python(path, size);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const struct nccl* load_locked(const char* path, char* reason, size_t size) {
  static struct nccl table;
  static int loaded;
  if (loaded) {
    return &table;
  }
  void* object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (object == NULL) {
    snprintf(reason, size, "%s", dlerror());
    return NULL;
  }
  for (int i = 0; i < symbol_count; ++i) {
    void* symbol = dlsym(object, symbols[i].name);
    if (symbol == NULL && !symbols[i].optional) {
      snprintf(reason, size, "%s has no %s", path, symbols[i].name);
      return NULL;
    }
    memcpy((char*)&table + symbols[i].place, &symbol, sizeof symbol);
  }
  loaded = 1;
  return &table;
}

const struct nccl* nccl_load(const char* path, char* reason, size_t size) {
  pthread_mutex_lock(&lock);
  const struct nccl* nccl = load_locked(path, reason, size);
  pthread_mutex_unlock(&lock);
  return nccl;
}

void nccl_version_text(const struct nccl* nccl, char* buffer, size_t size) {
  int version = 0;
  buffer[0] = '\0';
  if (nccl != NULL && nccl->version(&version) == 0) {
    snprintf(buffer, size, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
  }
}
