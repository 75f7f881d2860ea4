/* symm.h for wrapper generators: no structs, no output pointers. Options are plain arguments,
 * results are returned, texts are whole strings, addresses and streams are size_t (uint64_t would
 * be a BigInteger in Java). symm.i wraps this in place of what it ignores of symm.h.
 *
 * A function that can fail and returns something else fills a flat_failure; its message is read in
 * the same call, on the same thread, because a thread of another language may be moved or reused
 * before it asks. */
#ifndef SYMM_BINDINGS_FLAT_H_
#define SYMM_BINDINGS_FLAT_H_

#include <stdlib.h>
#include <symm.h>

/* Of a successful call: SYMM_OK and "". The text is good until the thread's next call. */
typedef struct flat_failure {
  symm_status status;
  const char* message;
} flat_failure;

#ifndef SWIG /* what follows is not for the generator */

static inline void flat_set(flat_failure* failure, symm_status status) {
  failure->status = status;
  failure->message = status == SYMM_OK ? "" : symm_last_error();
}

static inline void* flat_pointer(size_t address) { return (void*)address; }

/* A text of a size that only the call itself knows: fill(context, buffer, size, needed) until it
 * fits. What is reported may grow between two calls. The result is the caller's to free(). */
typedef symm_status (*flat_fill)(const void* context, char* buffer, size_t size, size_t* needed);

static inline char* flat_text(flat_fill fill, const void* context, flat_failure* failure) {
  size_t size = 512;
  char* buffer = NULL;
  for (;;) {
    char* larger = (char*)realloc(buffer, size);
    if (larger == NULL) {
      free(buffer);
      failure->status = SYMM_OUT_OF_MEMORY;
      failure->message = "no memory for the text of an answer";
      return NULL;
    }
    buffer = larger;
    size_t needed = 0;
    flat_set(failure, fill(context, buffer, size, &needed));
    if (failure->status == SYMM_OK) {
      return buffer;
    }
    if (failure->status != SYMM_INVALID_ARGUMENT || needed <= size) {
      free(buffer);
      return NULL;
    }
    size = needed;
  }
}

static inline symm_status flat_fill_report(const void* context, char* buffer, size_t size,
                                           size_t* needed) {
  return symm_report((const symm_comm*)context, buffer, size, needed);
}

static inline symm_status flat_fill_address(const void* context, char* buffer, size_t size,
                                            size_t* needed) {
  return symm_address_create((const char*)context, buffer, size, needed);
}

typedef struct flat_plan_call {
  const symm_comm* comm;
  const symm_window* window;
  size_t count;
  symm_dtype dtype;
  symm_op op;
} flat_plan_call;

static inline symm_status flat_fill_plan(const void* context, char* buffer, size_t size,
                                         size_t* needed) {
  const flat_plan_call* call = (const flat_plan_call*)context;
  return symm_plan(call->comm, call->window, call->count, call->dtype, call->op, buffer, size,
                   needed);
}

static inline symm_comm_options flat_comm_options(const char* name, const char* nccl_path,
                                                  size_t scratch_bytes, int32_t timeout_ms,
                                                  int32_t wait_timeout_ms, int32_t flags) {
  const symm_comm_options zero = {0};
  symm_comm_options options = zero;
  options.size = sizeof options;
  options.name = name;
  options.nccl_path = nccl_path;
  options.scratch_bytes = scratch_bytes;
  options.timeout_ms = timeout_ms;
  options.wait_timeout_ms = wait_timeout_ms;
  options.flags = (uint32_t)flags;
  return options;
}

static inline symm_window_options flat_window_options(int32_t flags, int32_t fd, size_t fd_offset) {
  const symm_window_options zero = {0};
  symm_window_options options = zero;
  options.size = sizeof options;
  options.fd = fd;
  options.fd_offset = fd_offset;
  options.flags = (uint32_t)flags;
  return options;
}

#endif /* SWIG */

/* ---- The library ---- */

/* `comm` may be NULL. */
static inline char* flat_report(const symm_comm* comm, flat_failure* failure) {
  return flat_text(flat_fill_report, comm, failure);
}

static inline char* flat_plan(const symm_comm* comm, const symm_window* window_or_null,
                              size_t count, int32_t dtype, int32_t op, flat_failure* failure) {
  const flat_plan_call call = {comm, window_or_null, count, (symm_dtype)dtype, (symm_op)op};
  return flat_text(flat_fill_plan, &call, failure);
}

/* `host` may be NULL. */
static inline char* flat_address_create(const char* host, flat_failure* failure) {
  return flat_text(flat_fill_address, host, failure);
}

/* ---- Communicators ---- */

static inline symm_comm* flat_comm_create(const char* address, int32_t rank, int32_t size,
                                          int32_t device, const char* name, const char* nccl_path,
                                          size_t scratch_bytes, int32_t timeout_ms,
                                          int32_t wait_timeout_ms, int32_t flags,
                                          flat_failure* failure) {
  const symm_comm_options options =
      flat_comm_options(name, nccl_path, scratch_bytes, timeout_ms, wait_timeout_ms, flags);
  symm_comm* comm = NULL;
  flat_set(failure, symm_comm_create(address, rank, size, device, &options, &comm));
  return comm;
}

/* NULL, and no failure, for SYMM_NO_COLOR. */
static inline symm_comm* flat_comm_split(symm_comm* comm, int32_t color, int32_t key,
                                         const char* name, const char* nccl_path,
                                         size_t scratch_bytes, int32_t timeout_ms,
                                         int32_t wait_timeout_ms, int32_t flags,
                                         flat_failure* failure) {
  const symm_comm_options options =
      flat_comm_options(name, nccl_path, scratch_bytes, timeout_ms, wait_timeout_ms, flags);
  symm_comm* out = NULL;
  flat_set(failure, symm_comm_split(comm, color, key, &options, &out));
  return out;
}

static inline int32_t flat_comm_rank(const symm_comm* comm, flat_failure* failure) {
  int32_t rank = -1;
  flat_set(failure, symm_comm_rank(comm, &rank));
  return rank;
}

static inline int32_t flat_comm_size(const symm_comm* comm, flat_failure* failure) {
  int32_t size = 0;
  flat_set(failure, symm_comm_size(comm, &size));
  return size;
}

static inline int32_t flat_comm_device(const symm_comm* comm, flat_failure* failure) {
  int32_t device = SYMM_CPU;
  flat_set(failure, symm_comm_device(comm, &device));
  return device;
}

static inline symm_status flat_comm_barrier(symm_comm* comm, size_t stream) {
  return symm_comm_barrier(comm, flat_pointer(stream));
}

/* The rank to blame for the sticky error, or -1: for an exception's field, beside the message of
 * the call that failed. */
static inline int32_t flat_comm_failed_rank(const symm_comm* comm) {
  int32_t rank = -1;
  (void)symm_comm_check(comm, &rank);
  return rank;
}

static inline symm_status flat_comm_check(const symm_comm* comm) {
  return symm_comm_check(comm, NULL);
}

/* The address of the ncclComm_t. */
static inline size_t flat_comm_nccl(const symm_comm* comm, flat_failure* failure) {
  void* nccl = NULL;
  flat_set(failure, symm_comm_nccl(comm, &nccl));
  return (size_t)nccl;
}

/* ---- Windows ---- */

static inline symm_window* flat_window_alloc(symm_comm* comm, size_t bytes, int32_t flags,
                                             flat_failure* failure) {
  const symm_window_options options = flat_window_options(flags, 0, 0);
  symm_window* window = NULL;
  flat_set(failure, symm_window_alloc(comm, bytes, &options, &window));
  return window;
}

/* `fd` and `fd_offset` are 0 without SYMM_WINDOW_FD in `flags`. */
static inline symm_window* flat_window_register(symm_comm* comm, size_t address, size_t bytes,
                                                int32_t flags, int32_t fd, size_t fd_offset,
                                                flat_failure* failure) {
  const symm_window_options options = flat_window_options(flags, fd, fd_offset);
  symm_window* window = NULL;
  flat_set(failure, symm_window_register(comm, flat_pointer(address), bytes, &options, &window));
  return window;
}

static inline size_t flat_window_size(const symm_window* window, flat_failure* failure) {
  size_t bytes = 0;
  flat_set(failure, symm_window_size(window, &bytes));
  return bytes;
}

/* An address; 0 for a window of 0 bytes. */
static inline size_t flat_window_data(const symm_window* window, int32_t rank,
                                      flat_failure* failure) {
  void* pointer = NULL;
  flat_set(failure, symm_window_data(window, rank, &pointer));
  return (size_t)pointer;
}

/* ---- All-reduce ---- */

static inline symm_status flat_all_reduce(symm_comm* comm, size_t input, size_t output,
                                          size_t count, int32_t dtype, int32_t op, size_t stream) {
  return symm_all_reduce(comm, flat_pointer(input), flat_pointer(output), count, (symm_dtype)dtype,
                         (symm_op)op, flat_pointer(stream));
}

static inline symm_status flat_window_all_reduce(symm_window* window, size_t offset, size_t output,
                                                 size_t count, int32_t dtype, int32_t op,
                                                 size_t stream) {
  return symm_window_all_reduce(window, offset, flat_pointer(output), count, (symm_dtype)dtype,
                                (symm_op)op, flat_pointer(stream));
}

#endif /* SYMM_BINDINGS_FLAT_H_ */
