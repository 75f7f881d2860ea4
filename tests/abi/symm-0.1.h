/* symm.h - symmetric memory windows and one-shot all-reduce. C99 and C++, no CUDA needed to compile it.
 *
 * Rules that hold for every function:
 * - It returns SYMM_OK (0) or a negative symm_status. Outputs are last, and are written only on success
 *   (`needed` of symm_report and symm_address_create, and options->error, are the exceptions: always written).
 * - "Collective": every rank of the communicator calls it, in the same order among the collective calls of that
 *   communicator. If it fails on one rank it fails on every rank, local argument errors included.
 * - "Stream-ordered": it enqueues on `stream` of a CUDA communicator and returns; on a CPU communicator it blocks.
 * - Threads: different communicators may be used at once. Calls on one communicator (and on its windows) are
 *   serialised by the library; their order is the caller's business. symm_comm_abort, _check, _rank, _size, _device,
 *   symm_window_size, _data and symm_report may be called at any time, also while another thread is inside a call.
 *   A *_free may not race with another call on the same handle: abort, join, then free.
 * - Sticky errors: TIMEOUT, PEER, MISMATCH, ABORTED, CUDA, NCCL and INTERNAL end the communicator and its windows. Every
 *   later call but *_free, symm_report and the getters returns the same status at once, graph replays become empty,
 *   outputs are then unspecified. There is no reset: create another one. Other statuses change nothing.
 * - GPUs that do not reach each other's memory (several hosts, no peer access: several peer domains) work through NCCL.
 *   There are no windows then, order and precision are NCCL's (narrow floats may be rounded at every step, MAX and MIN may
 *   pass over a NaN), and calls that differ between ranks are not recognised but time out. symm_plan says which path it is.
 * - fork: handles are dead in the child (INVALID_ARGUMENT); *_free there does nothing. The child may make its own.
 * - Options: fill `size` with sizeof the struct and zero the rest; zero is every field's default; NULL is all defaults. */
#ifndef SYMM_H
#define SYMM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header; compare with symm_version(). */
enum symm_header_version {
  SYMM_VERSION_MAJOR = 0, /* another one may break programs: it is SONAME's number too */
  SYMM_VERSION_MINOR = 1, /* a higher one only adds */
  SYMM_VERSION_PATCH = 0  /* a higher one only repairs */
};

/* What every call returns: 0 or negative. */
typedef enum symm_status {
  SYMM_OK = 0,                /* the call did what it says */
  SYMM_INVALID_ARGUMENT = -1, /* this rank's call, or (collective calls) another rank's, is wrong */
  SYMM_OUT_OF_MEMORY = -2,    /* host or device memory, or descriptors for it, ran out */
  SYMM_UNSUPPORTED = -3, /* not with this device, driver, build or library version; values unknown to it too */
  SYMM_SYSTEM = -4,      /* a system call failed: sockets, files, memory maps */
  SYMM_CUDA = -5,        /* a call of the CUDA driver failed */
  SYMM_NCCL = -6,        /* a call of NCCL failed */
  SYMM_TIMEOUT = -7,  /* some ranks did not arrive before the deadline */
  SYMM_PEER = -8,     /* a rank died, or left while it was still needed */
  SYMM_MISMATCH = -9, /* the ranks called different things */
  SYMM_ABORTED = -10, /* some rank called symm_comm_abort */
  SYMM_INTERNAL = -11,          /* a bug of symm */
  SYMM_STATUS_MAX_ = 0x7fffffff /* never used: makes any int a legal value in C++ too, as do those of the next two */
} symm_status;

/* NCCL's numbers. Types that NCCL lacks will start at 0x10000. */
typedef enum symm_dtype {
  SYMM_DTYPE_NONE = -1,         /* no type: refused by every call */
  SYMM_INT8 = 0,                /* int8_t */
  SYMM_UINT8 = 1,               /* uint8_t */
  SYMM_INT32 = 2,               /* int32_t */
  SYMM_UINT32 = 3,              /* uint32_t */
  SYMM_INT64 = 4,               /* int64_t */
  SYMM_UINT64 = 5,              /* uint64_t */
  SYMM_FLOAT16 = 6,             /* IEEE binary16 */
  SYMM_FLOAT32 = 7,             /* float */
  SYMM_FLOAT64 = 8,             /* double */
  SYMM_BFLOAT16 = 9,            /* the upper half of a float */
  SYMM_FLOAT8_E4M3 = 10,        /* OCP FP8 E4M3: no infinities, up to 448 */
  SYMM_FLOAT8_E5M2 = 11,        /* OCP FP8 E5M2, up to 57344 */
  SYMM_DTYPE_MAX_ = 0x7fffffff  /* never used */
} symm_dtype;

/* NCCL's numbers; ops that NCCL lacks will start at 0x10000. Operands are taken in rank order 0..N-1. 8- and 16-bit floats
 * accumulate in fp32 (SUM, PROD, AVG) and are rounded once, to nearest even; float8 overflow saturates, as CUDA's conversions
 * do. Integers wrap; AVG divides the accumulated sum by N, integers towards zero. MAX and MIN give NaN when any operand is
 * NaN, and take -0 as less than +0. A NaN has the same bits on every rank; which bits is unspecified. */
typedef enum symm_op {
  SYMM_OP_NONE = -1,         /* no operation: refused by every call */
  SYMM_SUM = 0,              /* the sum */
  SYMM_PROD = 1,             /* the product */
  SYMM_MAX = 2,              /* the largest */
  SYMM_MIN = 3,              /* the smallest */
  SYMM_AVG = 4,              /* the sum, divided by the number of ranks */
  SYMM_OP_MAX_ = 0x7fffffff  /* never used */
} symm_op;

/* For `device`: 0 and up is a CUDA ordinal of this process. Other kinds of device will get numbers from 0x10000. */
typedef enum symm_device {
  SYMM_CPU = -1,        /* memory and arithmetic of the host */
  SYMM_LOCAL_GPU = -2,  /* the only visible GPU, or else the one numbered by the launcher's local rank */
  SYMM_CURRENT_GPU = -3 /* the CUDA runtime's current device of the calling thread */
} symm_device;

/* Numbers with a meaning of their own. */
enum symm_limits {
  SYMM_FROM_ADDRESS = -1, /* rank and size: take them from the launcher's variables (env:// only) */
  SYMM_NO_COLOR = -1,     /* symm_comm_split: join no group, get a NULL communicator */
  SYMM_ADDRESS_SIZE = 512 /* a buffer of this size holds every address of this major version */
};

/* Bits of symm_comm_options.flags. */
typedef enum symm_comm_flags {
  SYMM_COMM_SHARE_GPU = 1,    /* several ranks may use one GPU */
  SYMM_COMM_NCCL = 2,         /* create the NCCL communicator even where it is not needed; one rank a GPU */
  SYMM_COMM_STRICT = 4,       /* fail rather than use a path (NCCL) whose order of operands is not 0..N-1 */
  SYMM_COMM_SOLE = 8          /* no other communicator works on these GPUs meanwhile: larger grids, faster from 4 MiB up */
} symm_comm_flags;

/* Bits of symm_window_options.flags. */
typedef enum symm_window_flags {
  SYMM_WINDOW_NCCL = 1, /* make it an NCCL window as well, equal on every rank; symm_report says where NCCL has none */
  SYMM_WINDOW_FD = 2    /* `fd` and `fd_offset` say what is mapped at the registered pointer (CPU) */
} symm_window_flags;

/* A communicator: one rank's handle on a group of ranks. */
typedef struct symm_comm symm_comm;
/* A window: one rank's handle on memory that every rank of a communicator sees. */
typedef struct symm_window symm_window;

/* For symm_comm_create and symm_comm_split (there, 0 and NULL mean the parent's). name, scratch_bytes, the timeouts and
 * flags must be equal on every rank; the others are local. No padding: every byte belongs to a field, whole 8 bytes are added. */
typedef struct symm_comm_options {
  size_t size;             /* sizeof(symm_comm_options) */
  const char *name;        /* tells apart communicators created over one address; NULL is "" */
  const char *nccl_path;   /* of libnccl.so.2; NULL: one already loaded, else the usual places */
  char *error;             /* NULL, or where to put the message of a failure (for callers whose threads move) */
  size_t error_size;       /* bytes at `error`; a longer message is cut */
  size_t scratch_bytes;    /* most memory for scratch on each rank, larger messages go in pieces; 0: 128 MiB */
  int32_t timeout_ms;      /* deadline of collective set-up (create, split, windows); 0: 300000; negative: INVALID_ARGUMENT */
  int32_t wait_timeout_ms; /* deadline of waits inside all-reduces and barriers; 0: 600000; negative: INVALID_ARGUMENT */
  uint32_t flags;          /* symm_comm_flags */
  uint32_t reserved;       /* 0 */
} symm_comm_options;

/* For symm_window_alloc and symm_window_register; local, but for SYMM_WINDOW_NCCL. No padding, like symm_comm_options. */
typedef struct symm_window_options {
  size_t size;       /* sizeof(symm_window_options) */
  char *error;       /* NULL, or where to put the message of a failure */
  size_t error_size; /* bytes at `error`; a longer message is cut */
  size_t fd_offset;  /* with SYMM_WINDOW_FD: where in the file the registered memory starts */
  int32_t fd;        /* with SYMM_WINDOW_FD: the memfd or other shared file mapped there; stays the caller's */
  uint32_t flags;    /* symm_window_flags */
} symm_window_options;

/* ---- The library ---- */

/* The library's version, major * 1000000 + minor * 1000 + patch. Never fails. */
int32_t symm_version(void);

/* "SYMM_TIMEOUT" and so on, static; "SYMM_UNKNOWN" for a number this library does not know. Never NULL. */
const char *symm_status_name(int32_t status);

/* What went wrong in the last failed call of this thread: function, argument, value, rank, remedy. Never NULL; "" before the
 * first failure; kept until this thread's next failing call. Callers that cannot pin a thread use options->error and
 * symm_report, which has the sticky error of a communicator. */
const char *symm_last_error(void);

/* JSON about `comm`, or about the process and machine for NULL: library, device, driver, NCCL, how each peer is reached and
 * why not better, sticky error, algorithm table. Local; allowed on a failed communicator. Keys are only ever added.
 * *needed is the size with its NUL. buffer NULL with size 0 asks for it; a buffer too small is INVALID_ARGUMENT. */
symm_status symm_report(const symm_comm *comm, char *buffer, size_t size, size_t *needed);

/* Which path a call would take: JSON {algorithm, blocks, threads, reason, faster: [{algorithm, why_not}]}. Local. */
symm_status symm_plan(const symm_comm *comm, const symm_window *window_or_null, size_t count, symm_dtype dtype, symm_op op,
                      char *buffer, size_t size, size_t *needed);

/* ---- Communicators ---- */

/* A new address, served by this process (a rank or not) until it exits; hand it to every rank by any means. It serves any
 * number of communicators, by name; one socket serves all addresses of a process, so nothing needs freeing. `host` is the
 * name or number others reach this process by; NULL: every interface it has. At most SYMM_ADDRESS_SIZE with its NUL. */
symm_status symm_address_create(const char *host, char *buffer, size_t size, size_t *needed);

/* Collective over the `size` callers with one address and one name. Addresses: of symm_address_create, tcp://host:port (rank
 * 0 serves), file:///path, env://. Blocks until all are here or timeout_ms is over. May repeat; two at once, or one after
 * a rank was restarted, need names of their own. Leaves the calling thread's CUDA device as it was. */
symm_status symm_comm_create(const char *address, int32_t rank, int32_t size, int32_t device,
                             const symm_comm_options *options, symm_comm **comm);

/* Collective. One communicator for each color >= 0, ranked by key, then by old rank. *out is NULL for SYMM_NO_COLOR.
 * The new one owes nothing to the old: either may be freed, aborted or fail without the other. */
symm_status symm_comm_split(symm_comm *comm, int32_t color, int32_t key, const symm_comm_options *options, symm_comm **out);

/* This process's (or thread's) own rank in it, 0 and up. Local. */
symm_status symm_comm_rank(const symm_comm *comm, int32_t *rank);

/* The number of ranks. Local. */
symm_status symm_comm_size(const symm_comm *comm, int32_t *size);

/* Where it works: a CUDA ordinal, or SYMM_CPU. Local. */
symm_status symm_comm_device(const symm_comm *comm, int32_t *device);

/* Collective, stream-ordered: what follows on `stream` runs after everything enqueued before it on every rank, and
 * sees their stores to windows. For the host: synchronise the stream after it. */
symm_status symm_comm_barrier(symm_comm *comm, void *stream);

/* The sticky error, SYMM_OK if none yet. Local, does not block: it knows of an enqueued operation once that has run (after
 * cudaStreamSynchronize). *rank is the rank to blame or -1; rank may be NULL. */
symm_status symm_comm_check(const symm_comm *comm, int32_t *rank);

/* Ends every wait of this communicator on every rank, now and later, with ABORTED. Local, any thread, does not block. Its
 * windows end too; its parent, children and siblings do not. */
symm_status symm_comm_abort(symm_comm *comm);

/* Gives the handle back. Local, never waits. The rank stays a member until its windows, enqueued work and the graphs
 * that captured it are gone; it then leaves cleanly, which is an error only for calls that still need it. */
void symm_comm_free(symm_comm *comm);

/* The ncclComm_t inside, still symm's: valid until comm is freed or fails, never to be destroyed. UNSUPPORTED if there is
 * none. Calls on it and on comm must not overlap. Freed windows stay NCCL's until all ranks have made another with
 * SYMM_WINDOW_NCCL, or comm ends. An abort may not end NCCL's own kernels over windows. */
symm_status symm_comm_nccl(const symm_comm *comm, void **nccl);

/* ---- Windows ---- */

/* Collective. `bytes`, equal on every rank, of zeroed memory, aligned to 256 bytes. 0 bytes is a window with no memory. */
symm_status symm_window_alloc(symm_comm *comm, size_t bytes, const symm_window_options *options, symm_window **window);

/* Collective. The same over memory of the caller's, any address inside any allocation; it may differ between ranks, `bytes`
 * may not. The memory must outlive the window on every rank, graphs included: free it, symm_comm_barrier, release it.
 * CPU memory must be a memfd or other shared mapping: of a symm window, or named by options->fd. */
symm_status symm_window_register(symm_comm *comm, void *pointer, size_t bytes, const symm_window_options *options,
                                 symm_window **window);

/* The bytes of each rank's copy. Local. */
symm_status symm_window_size(const symm_window *window, size_t *bytes);

/* Where this process sees that rank's copy, valid until symm_window_free here. A window that exists has all of them.
 * NULL for a window of 0 bytes. Of a registered window these are the library's own mappings, for this rank's copy too. */
symm_status symm_window_data(const symm_window *window, int32_t rank, void **pointer);

/* Gives the handle back. Local, never waits: the mapping goes when work enqueued and graphs captured with it are gone. */
void symm_window_free(symm_window *window);

/* ---- All-reduce ---- */

/* Collective, stream-ordered. output[i] = op over ranks of input[i]; input == output or no overlap. Any memory of the
 * device, element-aligned. A count of 0 takes part like any other. An argument error is local, sends nothing and is not
 * sticky. In a capture it becomes part of the graph. `stream` is a cudaStream_t of comm's device (NULL: the legacy
 * default stream); on a CPU communicator it must be NULL. Operations of one communicator are ordered by the library in
 * eager calls and within one capture; launches of graphs that share a communicator must be ordered by the caller. */
symm_status symm_all_reduce(symm_comm *comm, const void *input, void *output, size_t count, symm_dtype dtype, symm_op op,
                            void *stream);

/* The same with each rank's window + offset (bytes, equal on every rank) as input. Output: window + offset itself, or
 * anything that does not overlap the input. The window may be written again once this has run on this rank's stream. */
symm_status symm_window_all_reduce(symm_window *window, size_t offset, void *output, size_t count, symm_dtype dtype,
                                   symm_op op, void *stream);

#ifdef __cplusplus
}
#endif
#endif
