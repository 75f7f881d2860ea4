#include <stdarg.h>

#include "native.h"

symm_python_hooks symm_python_hook;

static void raise_text(symm_status status, PyObject* message, int32_t rank) {
  if (message == NULL) {
    return;
  }
  PyObject* error = NULL;
  if (symm_python_hook.error == NULL) {
    PyErr_SetObject(PyExc_RuntimeError, message);
  } else {
    error = PyObject_CallFunction(symm_python_hook.error, "iOi", (int)status, message, (int)rank);
  }
  if (error != NULL) {
    PyErr_SetObject((PyObject*)Py_TYPE(error), error);
    Py_DECREF(error);
  }
  Py_DECREF(message);
}

void symm_python_raise(symm_status status, const char* message, int32_t rank) {
  /* Names of files and hosts in it need not be UTF-8. */
  raise_text(status, PyUnicode_DecodeUTF8(message, (Py_ssize_t)strlen(message), "replace"), rank);
}

void symm_python_refuse(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  PyObject* message = PyUnicode_FromFormatV(format, arguments);
  va_end(arguments);
  raise_text(SYMM_INVALID_ARGUMENT, message, -1);
}
