/* The hand-written half of the extension module: what has to be fast, and what SWIG has no words
 * for. */
#ifndef SYMM_PYTHON_NATIVE_H_
#define SYMM_PYTHON_NATIVE_H_

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <symm.h>

#include "dlpack_abi.h"

/* ---- errors.c ---- */

/* Makes SymmError's subclass for `status` the pending exception. `rank` is to blame, -1: unknown.
 */
void symm_python_raise(symm_status status, const char* message, int32_t rank);

/* An invalid argument: printf's format, and Python's %R and so on (PyUnicode_FromFormat). */
void symm_python_refuse(const char* format, ...);

/* ---- handles.c ---- */

/* A handle is a capsule that frees it; calls hold a reference to it, so that no thread's close()
 * frees what another thread is using. The pointers are NULL with an exception for anything else,
 * None (closed) included. */
PyObject* symm_python_wrap_comm(symm_comm* comm);
PyObject* symm_python_wrap_window(symm_window* window);
symm_comm* symm_python_comm(PyObject* handle);
symm_window* symm_python_window(PyObject* handle);

/* ---- arrays.c ---- */

enum {
  ARRAY_DIMENSIONS = 64,    /* NumPy's and PyTorch's limit */
  ARRAY_DEVICE_UNKNOWN = -4 /* on some GPU */
};

/* An argument, looked at and not owned. */
typedef struct symm_python_array {
  void* data;
  size_t count;
  int64_t shape[ARRAY_DIMENSIONS];
  int32_t dimensions;
  symm_dtype dtype;
  int32_t device; /* SYMM_CPU, a CUDA ordinal or ARRAY_DEVICE_UNKNOWN */
  int read_only;
  int contiguous;                  /* in C order */
  const dlpack_exchange* exchange; /* or NULL */
  PyObject* keep;                  /* what the pointer belongs to beside the object; or NULL */
  PyObject* stream; /* what the object says about streams, or NULL; borrowed from `keep` */
} symm_python_array;

/* Looks at an argument called `name` of a function called `function`. `stream` is for producers
 * that wait for streams. Returns 0, or -1 with an exception. symm_python_forget is due in the first
 * case. */
int symm_python_look(PyObject* object, const char* function, const char* name, PyObject* stream,
                     symm_python_array* array);
void symm_python_forget(symm_python_array* array);

/* From DLPack's numbers, read_only excepted. 1, without an exception, for what is not known. */
int symm_python_look_tensor(const dlpack_tensor* tensor, symm_python_array* array);

/* A tuple. */
PyObject* symm_python_shape(const symm_python_array* array);

/* Once, at import. */
int symm_python_arrays_ready(void);

/* "float32"; "?" for what is none. */
const char* symm_python_dtype_name(symm_dtype dtype);
size_t symm_python_dtype_size(symm_dtype dtype);
dlpack_dtype symm_python_dtype_to_dlpack(symm_dtype dtype); /* a known one */

/* ---- the methods ---- */

/* Adds them to the module, and readies the rest. */
int symm_python_ready(PyObject* module);

/* Of symm._arrays and symm._errors, given by their import: the pieces that are better written in
 * Python. */
typedef struct symm_python_hooks {
  PyObject* error;      /* (status, message, rank) -> exception */
  PyObject* look;       /* (object, function, name, stream) -> tuple */
  PyObject* empty_like; /* (object) -> array */
  PyObject* stream;     /* (object or None, device) -> int */
} symm_python_hooks;
extern symm_python_hooks symm_python_hook;

/* dlpack.c */
PyObject* symm_python_dlpack_export(PyObject* module, PyObject* args);
PyObject* symm_python_dlpack_look(PyObject* module, PyObject* capsule);

/* all_reduce.c */
PyObject* symm_python_all_reduce(PyObject* module, PyObject* const* args, Py_ssize_t count);
PyObject* symm_python_window_all_reduce(PyObject* module, PyObject* const* args, Py_ssize_t count);

#endif /* SYMM_PYTHON_NATIVE_H_ */
