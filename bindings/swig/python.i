/* The extension module symm._capi: flat.h for Python, and the hand-written functions of bindings/python/src/native. The
 * proxies that SWIG writes beside it (capi.py) are not used: there are no classes, and every detour costs. */
%module(package="symm", threads="1") capi

%begin %{
#include "native.h"
%}

#define SYMM_RAISE(status, message) { symm_python_raise(status, message, -1); SWIG_fail; }

%typemap(in) symm_comm * {
  $1 = symm_python_comm($input);
  if ($1 == NULL) SWIG_fail;
}
%typemap(in) symm_window * {
  $1 = symm_python_window($input);
  if ($1 == NULL) SWIG_fail;
}
%typemap(in) const symm_window *window_or_null {
  $1 = $input == Py_None ? NULL : symm_python_window($input);
  if ($1 == NULL && PyErr_Occurred()) SWIG_fail;
}
%typemap(out) symm_comm * { $result = symm_python_wrap_comm($1); if ($result == NULL) SWIG_fail; }
%typemap(out) symm_window * { $result = symm_python_wrap_window($1); if ($result == NULL) SWIG_fail; }

/* A success has nothing to return. By function, because the shared typemap leaves the result alone. */
%typemap(out) symm_status flat_comm_barrier, symm_status flat_comm_check, symm_status symm_comm_abort {
  if ($1 != SYMM_OK) {
    SYMM_RAISE($1, symm_last_error())
  }
  $result = SWIG_Py_Void();
}

/* The calls that wait for other ranks, or for a name server. Everything else keeps the interpreter. */
%nothread;
%thread flat_address_create;
%thread flat_comm_create;
%thread flat_comm_split;
%thread flat_comm_barrier;
%thread flat_window_alloc;
%thread flat_window_register;

/* A handle frees itself; all-reduces are hand-written. */
%ignore symm_comm_free;
%ignore symm_window_free;
%ignore flat_all_reduce;
%ignore flat_window_all_reduce;

%init %{
  if (symm_python_ready(m) != 0) {
    return -1;
  }
%}

%include "symm.i"

/* symm_report of no communicator. */
%newobject process_report;
%inline %{
static char *process_report(flat_failure *failure) { return flat_report(NULL, failure); }
%}
