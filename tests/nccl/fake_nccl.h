/* The controls of a libnccl.so.2 that is not NCCL: ranks are threads of one process, memory is the
 * host's, and it can be told to be old, to lack windows, to fail or to hang. Found by
 * dlsym("fake_nccl"). */
#ifndef SYMM_TESTS_NCCL_FAKE_NCCL_H_
#define SYMM_TESTS_NCCL_FAKE_NCCL_H_

struct fake_nccl {
  /* What to be. Set before the call that is to see it. */
  int version;            /* ncclGetVersion's */
  int null_window_rank;   /* ncclCommWindowRegister succeeds there without a window; -2: on all, -1:
                             none */
  int asynchronous_error; /* ncclCommGetAsyncError's, of every communicator */
  const char* fail_call;  /* this function ... */
  int fail_rank;          /* ... on this rank (-1: on every rank) ... */
  int fail_result;        /* ... gives that ncclResult_t */
  const char* hang_call;  /* waits until release() or, with a communicator, its abort */
  int hang_rank;
  int enqueue_only; /* ncclAllReduce returns at once and does nothing */
  void (*release)(void);
  void (*reset)(void); /* as it was at first; counts too, but of what is alive */

  /* What happened. */
  int communicators; /* alive */
  int windows;       /* alive */
  int initialised, destroyed, aborted, revoked, reductions, registrations;
  int misused; /* calls with a communicator or window that is gone */
};

#ifdef __cplusplus
extern "C"
#endif
    struct fake_nccl*
    fake_nccl(void);

#endif
