#include "native.h"

/* Argument `object` as an op; SYMM_OP_NONE with an exception. */
static symm_op op_of(PyObject* object, const char* function) {
  static const char* const names[] = {"sum", "prod", "max", "min", "avg"}; /* in symm_op's order */
  if (PyUnicode_Check(object)) {
    for (int i = 0; i < (int)(sizeof names / sizeof names[0]); ++i) {
      if (PyUnicode_CompareWithASCIIString(object, names[i]) == 0) {
        return (symm_op)i;
      }
    }
    symm_python_refuse("%s: op %R; known are 'sum', 'prod', 'max', 'min' and 'avg'", function,
                       object);
  } else {
    PyErr_Format(PyExc_TypeError, "%s: op must be a str, not %R", function, object);
  }
  return SYMM_OP_NONE;
}

static int fits_device(const symm_python_array* array, int32_t device, const char* function,
                       const char* name) {
  if (array->device == device || (array->device == ARRAY_DEVICE_UNKNOWN && device != SYMM_CPU)) {
    return 1;
  }
  if (array->device == SYMM_CPU) {
    symm_python_refuse(
        "%s: %s is in the host's memory, and the communicator works on CUDA device %d", function,
        name, (int)device);
  } else if (device == SYMM_CPU) {
    symm_python_refuse("%s: %s is on a GPU, and the communicator works on the CPU", function, name);
  } else {
    symm_python_refuse("%s: %s is on CUDA device %d, and the communicator works on CUDA device %d",
                       function, name, (int)array->device, (int)device);
  }
  return 0;
}

static int is_contiguous(const symm_python_array* array, const char* function, const char* name) {
  if (!array->contiguous) {
    symm_python_refuse("%s: %s is not contiguous in C order: pass a contiguous copy of it",
                       function, name);
  }
  return array->contiguous;
}

static int is_writable(const symm_python_array* array, const char* function) {
  if (array->read_only) {
    symm_python_refuse("%s: out is read-only", function);
  }
  return !array->read_only;
}

static int has_same_shape(const symm_python_array* x, const symm_python_array* out,
                          const char* function) {
  if (x->dimensions == out->dimensions &&
      memcmp(x->shape, out->shape, (size_t)x->dimensions * sizeof x->shape[0]) == 0) {
    return 1;
  }
  PyObject *of_x = symm_python_shape(x), *of_out = symm_python_shape(out);
  if (of_x != NULL && of_out != NULL) {
    symm_python_refuse("%s: out has shape %R where x has %R", function, of_out, of_x);
  }
  Py_XDECREF(of_x);
  Py_XDECREF(of_out);
  return 0;
}

static int has_same_dtype(symm_dtype dtype, const symm_python_array* out, const char* function,
                          const char* source) {
  if (dtype != out->dtype) {
    symm_python_refuse("%s: out has dtype %s where %s has %s", function,
                       symm_python_dtype_name(out->dtype), source, symm_python_dtype_name(dtype));
  }
  return dtype == out->dtype;
}

/* The stream of argument `wanted`, for an operation on `array` (NULL: on none). -1 with an
 * exception. */
static int stream_of(PyObject* wanted, const symm_python_array* array, int32_t device,
                     const char* function, void** stream) {
  *stream = NULL;
  if (device == SYMM_CPU) {
    if (wanted != Py_None) {
      symm_python_refuse("%s: stream %R, and the communicator works on the CPU, which has none",
                         function, wanted);
      return -1;
    }
    return 0;
  }
  if (wanted == Py_None && array != NULL && array->exchange != NULL &&
      array->exchange->current_stream != NULL) {
    if (array->exchange->current_stream(DLPACK_CUDA, device, stream) == 0) {
      return 0;
    }
    return -1;
  }
  PyObject* hint = array != NULL && array->stream != NULL ? array->stream : Py_None;
  PyObject* number =
      PyObject_CallFunction(symm_python_hook.stream, "OOi", wanted, hint, (int)device);
  if (number == NULL) {
    return -1;
  }
  *stream = PyLong_AsVoidPtr(number);
  Py_DECREF(number);
  return *stream == NULL && PyErr_Occurred() ? -1 : 0;
}

/* Of a call that just failed on this thread. */
static void raise_failure(symm_status status, const symm_comm* comm) {
  /* The check below would overwrite it. */
  char message[4096];
  snprintf(message, sizeof message, "%s", symm_last_error());
  int32_t rank = -1;
  if (symm_comm_check(comm, &rank) != status) {
    rank = -1; /* of another failure */
  }
  symm_python_raise(status, message, rank);
}

/* Everything between looking at the arrays and returning. */
static int reduce(symm_comm* comm, int32_t device, const symm_python_array* x,
                  const symm_python_array* out, symm_op op, PyObject* stream) {
  static const char function[] = "all_reduce";
  void* on = NULL;
  if (!fits_device(x, device, function, "x") || !fits_device(out, device, function, "out") ||
      !has_same_dtype(x->dtype, out, function, "x") || !has_same_shape(x, out, function) ||
      !is_contiguous(x, function, "x") || !is_contiguous(out, function, "out") ||
      !is_writable(out, function) || stream_of(stream, x, device, function, &on) != 0) {
    return -1;
  }
  symm_status status;
  /* However small it is: it may wait for a rank that is another thread of this interpreter. */
  Py_BEGIN_ALLOW_THREADS status =
      symm_all_reduce(comm, x->data, out->data, x->count, x->dtype, op, on);
  Py_END_ALLOW_THREADS if (status != SYMM_OK) {
    raise_failure(status, comm);
    return -1;
  }
  return 0;
}

/* For out=None: (array to write to, what makes the result of it or None). */
static int new_output(PyObject* x, PyObject** out, PyObject** finish) {
  PyObject* pair = PyObject_CallFunctionObjArgs(symm_python_hook.empty_like, x, NULL);
  if (pair == NULL) {
    return -1;
  }
  const int parsed = PyArg_ParseTuple(pair, "OO", out, finish);
  if (parsed) {
    Py_INCREF(*out);
    Py_INCREF(*finish);
  }
  Py_DECREF(pair);
  return parsed ? 0 : -1;
}

static int takes(Py_ssize_t wanted, Py_ssize_t count, const char* function) {
  if (count != wanted) {
    PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, not %zd", function, wanted, count);
  }
  return count == wanted;
}

static int device_of(const symm_comm* comm, int32_t* device) {
  const symm_status status = symm_comm_device(comm, device);
  if (status != SYMM_OK) {
    symm_python_raise(status, symm_last_error(), -1);
  }
  return status == SYMM_OK;
}

/* Reduces x, looked at already, to `out`, which may be x. */
static int reduce_into(symm_comm* comm, int32_t device, PyObject* x, const symm_python_array* in,
                       PyObject* out, symm_op op, PyObject* stream) {
  if (out == x) {
    return reduce(comm, device, in, in, op, stream);
  }
  symm_python_array result;
  if (symm_python_look(out, "all_reduce", "out", stream, &result) != 0) {
    return -1;
  }
  const int failed = reduce(comm, device, in, &result, op, stream);
  symm_python_forget(&result);
  return failed;
}

static PyObject* reduce_to_new(symm_comm* comm, int32_t device, PyObject* x,
                               const symm_python_array* in, symm_op op, PyObject* stream) {
  PyObject *out, *finish;
  if (!fits_device(in, device, "all_reduce", "x") || !is_contiguous(in, "all_reduce", "x") ||
      new_output(x, &out, &finish) != 0) {
    return NULL;
  }
  PyObject* value = NULL;
  if (reduce_into(comm, device, x, in, out, op, stream) == 0) {
    if (finish == Py_None) {
      value = out;
      Py_INCREF(value);
    } else {
      value = PyObject_CallFunctionObjArgs(finish, out, NULL);
    }
  }
  Py_DECREF(out);
  Py_DECREF(finish);
  return value;
}

/* (comm, x, out, op, stream) */
PyObject* symm_python_all_reduce(PyObject* module, PyObject* const* args, Py_ssize_t count) {
  (void)module;
  static const char function[] = "all_reduce";
  symm_comm* comm = takes(5, count, function) ? symm_python_comm(args[0]) : NULL;
  int32_t device = SYMM_CPU;
  if (comm == NULL || !device_of(comm, &device)) {
    return NULL;
  }
  PyObject *const x = args[1], *const out = args[2], *const stream = args[4];
  const symm_op op = op_of(args[3], function);
  symm_python_array in;
  if (op == SYMM_OP_NONE || symm_python_look(x, function, "x", stream, &in) != 0) {
    return NULL;
  }
  PyObject* value = NULL;
  if (out == Py_None) {
    value = reduce_to_new(comm, device, x, &in, op, stream);
  } else if (reduce_into(comm, device, x, &in, out, op, stream) == 0) {
    value = out;
    Py_INCREF(value);
  }
  symm_python_forget(&in);
  return value;
}

/* In place: where this rank's own copy is. False with an exception, like the next one. */
static int own_copy(const symm_window* window, int32_t rank, size_t offset, void** output) {
  void* start = NULL;
  const symm_status status = symm_window_data(window, rank, &start);
  if (status != SYMM_OK) {
    symm_python_raise(status, symm_last_error(), -1);
    return 0;
  }
  *output = start == NULL ? NULL : (char*)start + offset;
  return 1;
}

/* Looks at an argument `out` of a window's all-reduce. symm_python_forget is due if true. */
static int window_output(PyObject* out, int32_t device, symm_dtype dtype, size_t count,
                         PyObject* stream, symm_python_array* result, void** output) {
  static const char function[] = "Window.all_reduce";
  if (symm_python_look(out, function, "out", stream, result) != 0) {
    return 0;
  }
  int fits = fits_device(result, device, function, "out") &&
             has_same_dtype(dtype, result, function, "the window") &&
             is_contiguous(result, function, "out") && is_writable(result, function);
  if (fits && result->count != count) {
    symm_python_refuse("%s: out has %zu elements where %zu are reduced", function, result->count,
                       count);
    fits = 0;
  }
  if (!fits) {
    symm_python_forget(result);
  }
  *output = result->data;
  return fits;
}

/* (window, comm, rank, dtype, offset, count, out, op, stream): offset and count are in elements;
 * out None: in place. */
PyObject* symm_python_window_all_reduce(PyObject* module, PyObject* const* args,
                                        Py_ssize_t argument_count) {
  (void)module;
  static const char function[] = "Window.all_reduce";
  if (!takes(9, argument_count, function)) {
    return NULL;
  }
  symm_window* window = symm_python_window(args[0]);
  symm_comm* comm = window == NULL ? NULL : symm_python_comm(args[1]);
  int32_t device = SYMM_CPU;
  if (comm == NULL || !device_of(comm, &device)) {
    return NULL;
  }
  const int32_t rank = (int32_t)PyLong_AsLong(args[2]);
  const symm_dtype dtype = (symm_dtype)PyLong_AsLong(args[3]);
  const size_t offset = PyLong_AsSize_t(args[4]);
  const size_t count = PyErr_Occurred() ? 0 : PyLong_AsSize_t(args[5]);
  if (PyErr_Occurred()) {
    return NULL;
  }
  PyObject *const out = args[6], *const stream = args[8];
  const symm_op op = op_of(args[7], function);
  if (op == SYMM_OP_NONE) {
    return NULL;
  }
  const size_t offset_bytes = offset * symm_python_dtype_size(dtype);
  symm_python_array result;
  void *output = NULL, *on = NULL;
  result.keep = NULL;
  if (out == Py_None ? !own_copy(window, rank, offset_bytes, &output)
                     : !window_output(out, device, dtype, count, stream, &result, &output)) {
    return NULL;
  }
  PyObject* value = NULL;
  if (stream_of(stream, out == Py_None ? NULL : &result, device, function, &on) == 0) {
    symm_status status;
    Py_BEGIN_ALLOW_THREADS status =
        symm_window_all_reduce(window, offset_bytes, output, count, dtype, op, on);
    Py_END_ALLOW_THREADS if (status == SYMM_OK) {
      value = out;
      Py_INCREF(value);
    }
    else {
      raise_failure(status, comm);
    }
  }
  symm_python_forget(&result);
  return value;
}
