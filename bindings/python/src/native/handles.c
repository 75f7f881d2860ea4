#include "native.h"

static const char comm_name[] = "symm_comm";
static const char window_name[] = "symm_window";

static void free_comm(PyObject* capsule) {
  symm_comm_free(PyCapsule_GetPointer(capsule, comm_name));
}
static void free_window(PyObject* capsule) {
  symm_window_free(PyCapsule_GetPointer(capsule, window_name));
}

PyObject* symm_python_wrap_comm(symm_comm* comm) {
  if (comm == NULL) {
    Py_RETURN_NONE;
  }
  PyObject* handle = PyCapsule_New(comm, comm_name, free_comm);
  if (handle == NULL) {
    symm_comm_free(comm);
  }
  return handle;
}

PyObject* symm_python_wrap_window(symm_window* window) {
  if (window == NULL) {
    Py_RETURN_NONE;
  }
  PyObject* handle = PyCapsule_New(window, window_name, free_window);
  if (handle == NULL) {
    symm_window_free(window);
  }
  return handle;
}

static void* pointer(PyObject* handle, const char* name, const char* noun) {
  if (PyCapsule_IsValid(handle, name)) {
    return PyCapsule_GetPointer(handle, name);
  }
  if (handle == Py_None) {
    symm_python_refuse("the %s is closed", noun);
  } else {
    PyErr_Format(PyExc_TypeError, "a %s's handle is needed, not %R", noun, handle);
  }
  return NULL;
}

symm_comm* symm_python_comm(PyObject* handle) { return pointer(handle, comm_name, "communicator"); }
symm_window* symm_python_window(PyObject* handle) { return pointer(handle, window_name, "window"); }
