#include "native.h"

/* (error, look, empty_like, stream): see symm_python_hooks. */
static PyObject* set_hooks(PyObject* module, PyObject* args) {
  (void)module;
  symm_python_hooks hooks;
  if (!PyArg_ParseTuple(args, "OOOO", &hooks.error, &hooks.look, &hooks.empty_like,
                        &hooks.stream)) {
    return NULL;
  }
  const symm_python_hooks old = symm_python_hook;
  Py_INCREF(hooks.error);
  Py_INCREF(hooks.look);
  Py_INCREF(hooks.empty_like);
  Py_INCREF(hooks.stream);
  symm_python_hook = hooks;
  Py_XDECREF(old.error);
  Py_XDECREF(old.look);
  Py_XDECREF(old.empty_like);
  Py_XDECREF(old.stream);
  Py_RETURN_NONE;
}

/* (object, function, name) -> (address, shape, dtype, device, read_only, contiguous); good while
 * the object is. */
static PyObject* look(PyObject* module, PyObject* args) {
  (void)module;
  PyObject* object;
  const char *function, *name;
  symm_python_array array;
  if (!PyArg_ParseTuple(args, "Oss", &object, &function, &name) ||
      symm_python_look(object, function, name, Py_None, &array) != 0) {
    return NULL;
  }
  PyObject* shape = symm_python_shape(&array);
  PyObject* result =
      shape == NULL
          ? NULL
          : Py_BuildValue("(KNiiNN)", (unsigned long long)(uintptr_t)array.data, shape,
                          (int)array.dtype, (int)array.device, PyBool_FromLong(array.read_only),
                          PyBool_FromLong(array.contiguous));
  symm_python_forget(&array);
  return result;
}

static PyMethodDef methods[] = {
    {"set_hooks", set_hooks, METH_VARARGS, NULL},
    {"look", look, METH_VARARGS, NULL},
    {"dlpack_export", symm_python_dlpack_export, METH_VARARGS, NULL},
    {"dlpack_look", symm_python_dlpack_look, METH_O, NULL},
    {"all_reduce", (PyCFunction)(void (*)(void))symm_python_all_reduce, METH_FASTCALL, NULL},
    {"window_all_reduce", (PyCFunction)(void (*)(void))symm_python_window_all_reduce, METH_FASTCALL,
     NULL},
    {NULL, NULL, 0, NULL}};

/* SWIG's own PyInit__capi, by another name. */
PyObject* symm_python_swig_init(void);

PyMODINIT_FUNC PyInit__capi(void) {
  /* What this module and SWIG keep, types and classes among it, is one for the process. */
  if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
    PyErr_SetString(PyExc_ImportError, "symm works in the main interpreter of a process only");
    return NULL;
  }
  return symm_python_swig_init();
}

int symm_python_ready(PyObject* module) {
  return symm_python_arrays_ready() == 0 ? PyModule_AddFunctions(module, methods) : -1;
}
