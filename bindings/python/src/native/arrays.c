#include "native.h"

/* ---- Types of elements ---- */

static const struct {
  const char* name;
  uint8_t size;
  uint8_t dlpack_code;
} dtypes[] = {
    [SYMM_INT8] = {"int8", 1, DLPACK_INT},
    [SYMM_UINT8] = {"uint8", 1, DLPACK_UINT},
    [SYMM_INT32] = {"int32", 4, DLPACK_INT},
    [SYMM_UINT32] = {"uint32", 4, DLPACK_UINT},
    [SYMM_INT64] = {"int64", 8, DLPACK_INT},
    [SYMM_UINT64] = {"uint64", 8, DLPACK_UINT},
    [SYMM_FLOAT16] = {"float16", 2, DLPACK_FLOAT},
    [SYMM_FLOAT32] = {"float32", 4, DLPACK_FLOAT},
    [SYMM_FLOAT64] = {"float64", 8, DLPACK_FLOAT},
    [SYMM_BFLOAT16] = {"bfloat16", 2, DLPACK_BFLOAT},
    [SYMM_FLOAT8_E4M3] = {"float8_e4m3", 1, DLPACK_FLOAT8_E4M3FN},
    [SYMM_FLOAT8_E5M2] = {"float8_e5m2", 1, DLPACK_FLOAT8_E5M2},
};
enum { dtype_count = sizeof dtypes / sizeof dtypes[0] };

static int is_dtype(symm_dtype dtype) { return (int)dtype >= 0 && (int)dtype < dtype_count; }

const char* symm_python_dtype_name(symm_dtype dtype) {
  return is_dtype(dtype) ? dtypes[dtype].name : "?";
}
size_t symm_python_dtype_size(symm_dtype dtype) { return is_dtype(dtype) ? dtypes[dtype].size : 0; }

dlpack_dtype symm_python_dtype_to_dlpack(symm_dtype dtype) {
  const dlpack_dtype result = {dtypes[dtype].dlpack_code, (uint8_t)(8 * dtypes[dtype].size), 1};
  return result;
}

static symm_dtype dtype_of_dlpack(dlpack_dtype type) {
  for (int i = 0; i < dtype_count; ++i) {
    if (type.code == dtypes[i].dlpack_code && type.bits == 8 * dtypes[i].size && type.lanes == 1) {
      return (symm_dtype)i;
    }
  }
  return SYMM_DTYPE_NONE;
}

/* Of an array interface's kind and size; the types that only have a name there are not among them.
 */
static symm_dtype dtype_of_kind(char kind, int size) {
  static const symm_dtype integers[] = {[1] = SYMM_INT8, [4] = SYMM_INT32, [8] = SYMM_INT64};
  static const symm_dtype naturals[] = {[1] = SYMM_UINT8, [4] = SYMM_UINT32, [8] = SYMM_UINT64};
  if (kind == 'f') {
    return size == 2   ? SYMM_FLOAT16
           : size == 4 ? SYMM_FLOAT32
           : size == 8 ? SYMM_FLOAT64
                       : SYMM_DTYPE_NONE;
  }
  if ((kind != 'i' && kind != 'u') || (size != 1 && size != 4 && size != 8)) {
    return SYMM_DTYPE_NONE;
  }
  return kind == 'i' ? integers[size] : naturals[size];
}

/* ---- Kinds of objects ---- */

enum kind {
  KIND_OTHER,        /* looked at by Python code */
  KIND_ARRAY_STRUCT, /* NumPy's __array_struct__ */
  KIND_EXCHANGE      /* DLPack's table of C functions */
};

/* How objects of a type are looked at: asking an object costs far more than the whole call where
 * the answer is no. A type in here is kept, so that no other can come to lie at its address. */
typedef struct known_type {
  PyTypeObject* type;
  enum kind kind;
  int is_torch; /* it has requires_grad, as PyTorch's tensors have */
  const dlpack_exchange* exchange;
} known_type;

static known_type known[8];
static unsigned next_known;

static PyObject *name_array_struct, *name_dtype, *name_requires_grad, *name_is_neg;

static int has_attribute(PyObject* object, const char* name) {
  PyObject* value = PyObject_GetAttrString(object, name);
  if (value == NULL) {
    PyErr_Clear();
    return 0;
  }
  Py_DECREF(value);
  return 1;
}

static const dlpack_exchange* exchange_of(PyObject* type) {
  PyObject* capsule = PyObject_GetAttrString(type, "__dlpack_c_exchange_api__");
  const dlpack_exchange* exchange = capsule == NULL ? NULL
                                                    : (const dlpack_exchange*)PyCapsule_GetPointer(
                                                          capsule, "dlpack_exchange_api");
  PyErr_Clear();
  Py_XDECREF(capsule); /* the table is static, by DLPack's rules */
  return exchange != NULL && exchange->version.major == 1 && exchange->look != NULL ? exchange
                                                                                    : NULL;
}

/* By value: another thread may take the place as soon as Python code runs. */
static known_type know(PyTypeObject* type) {
  for (unsigned i = 0; i < sizeof known / sizeof known[0]; ++i) {
    if (known[i].type == type) {
      return known[i];
    }
  }
  PyObject* object = (PyObject*)type;
  known_type entry = {type, KIND_OTHER, has_attribute(object, "requires_grad"),
                      exchange_of(object)};
  if (entry.exchange != NULL) {
    entry.kind = KIND_EXCHANGE;
  } else if (has_attribute(object, "__array_struct__") &&
             has_attribute(object, "__array_finalize__") && !has_attribute(object, "mask")) {
    /* Arrays, not NumPy's scalars, which make an array each time they are asked; masked arrays are
     * for the Python code. */
    entry.kind = KIND_ARRAY_STRUCT;
  }
  known_type* place = &known[next_known];
  next_known = (next_known + 1) % (sizeof known / sizeof known[0]);
  PyTypeObject* old = place->type;
  Py_INCREF(object);
  *place = entry;
  Py_XDECREF((PyObject*)old);
  return entry;
}

/* ---- dtypes that the array interface has no word for ---- */

/* ml_dtypes' are objects that exist once. Kept, like known types. */
static struct {
  PyObject* object;
  symm_dtype dtype;
} known_dtypes[4];
static unsigned next_known_dtype;

static symm_dtype recall_dtype(PyObject* array, int size) {
  PyObject* object = PyObject_GetAttr(array, name_dtype);
  symm_dtype dtype = SYMM_DTYPE_NONE;
  for (unsigned i = 0; object != NULL && i < sizeof known_dtypes / sizeof known_dtypes[0]; ++i) {
    if (known_dtypes[i].object == object &&
        symm_python_dtype_size(known_dtypes[i].dtype) == (size_t)size) {
      dtype = known_dtypes[i].dtype;
    }
  }
  PyErr_Clear();
  Py_XDECREF(object);
  return dtype;
}

static void remember_dtype(PyObject* array, symm_dtype dtype) {
  PyObject* object = PyObject_GetAttr(array, name_dtype);
  if (object == NULL) {
    PyErr_Clear();
    return;
  }
  PyObject* old = known_dtypes[next_known_dtype].object;
  known_dtypes[next_known_dtype].object = object;
  known_dtypes[next_known_dtype].dtype = dtype;
  next_known_dtype = (next_known_dtype + 1) % (sizeof known_dtypes / sizeof known_dtypes[0]);
  Py_XDECREF(old);
}

/* ---- Looking ---- */

/* False where a shape is of more elements than memory can have. */
static int multiply(size_t* count, int64_t extent) {
  return extent >= 0 && !__builtin_mul_overflow(*count, (size_t)extent, count);
}

/* NumPy's array interface, C side. */
typedef struct array_struct {
  int two;
  int dimensions;
  char kind;
  int size;
  int flags;
  Py_ssize_t* shape;
  Py_ssize_t* strides;
  void* data;
  PyObject* description;
} array_struct;
enum { ARRAY_C_CONTIGUOUS = 0x1, ARRAY_NATIVE = 0x200, ARRAY_WRITABLE = 0x400 };

/* The `look_*` return 0; or 1: the Python code shall do it, which knows more types and has words
 * for what is wrong. */
static int look_array_struct(PyObject* object, symm_python_array* array) {
  PyObject* capsule = PyObject_GetAttr(object, name_array_struct);
  const array_struct* view = capsule == NULL ? NULL : PyCapsule_GetPointer(capsule, NULL);
  int result = 1;
  if (view == NULL) {
    PyErr_Clear();
  } else if (view->two == 2 && view->dimensions <= ARRAY_DIMENSIONS &&
             (view->flags & ARRAY_NATIVE) != 0) {
    array->dtype = dtype_of_kind(view->kind, view->size);
    if (array->dtype == SYMM_DTYPE_NONE) {
      array->dtype = recall_dtype(object, view->size);
    }
    array->data = view->data;
    array->count = 1;
    array->dimensions = view->dimensions;
    int possible = 1;
    for (int i = 0; i < view->dimensions; ++i) {
      array->shape[i] = view->shape[i];
      possible &= multiply(&array->count, view->shape[i]);
    }
    array->device = SYMM_CPU;
    array->read_only = (view->flags & ARRAY_WRITABLE) == 0;
    array->contiguous = (view->flags & ARRAY_C_CONTIGUOUS) != 0;
    result = array->dtype == SYMM_DTYPE_NONE || !possible;
  }
  if (result == 0) {
    array->keep = capsule; /* it may own what it describes */
  } else {
    Py_XDECREF(capsule);
  }
  return result;
}

/* Everything but read_only, which is not the tensor's. */
static int copy_tensor(const dlpack_tensor* tensor, symm_python_array* array) {
  array->dtype = dtype_of_dlpack(tensor->dtype);
  if (array->dtype == SYMM_DTYPE_NONE || tensor->ndim < 0 || tensor->ndim > ARRAY_DIMENSIONS) {
    return 1;
  }
  switch (tensor->device.type) {
    case DLPACK_CPU:
    case DLPACK_CUDA_HOST:
      array->device = SYMM_CPU;
      break;
    case DLPACK_CUDA:
    case DLPACK_CUDA_MANAGED:
      array->device = tensor->device.id;
      break;
    default:
      return 1;
  }
  array->data = (char*)tensor->data + tensor->byte_offset;
  array->dimensions = tensor->ndim;
  array->count = 1;
  array->contiguous = 1;
  for (int i = tensor->ndim; i-- > 0;) {
    const int64_t extent = tensor->shape[i];
    array->shape[i] = extent;
    if (tensor->strides != NULL && extent != 1 && tensor->strides[i] != (int64_t)array->count) {
      array->contiguous = 0;
    }
    if (!multiply(&array->count, extent)) {
      return 1;
    }
  }
  array->contiguous |= array->count == 0;
  return 0;
}

static int look_exchange(PyObject* object, const known_type* type, symm_python_array* array) {
  dlpack_tensor tensor;
  if (type->exchange->look(object, &tensor) != 0) {
    PyErr_Clear();
    return 1;
  }
  array->exchange = type->exchange;
  return copy_tensor(&tensor, array);
}

/* From what the Python code says, which is borrowed from. */
static int fill(PyObject* description, const char* function, const char* name,
                symm_python_array* array) {
  PyObject *shape = NULL, *keep = NULL, *stream = NULL;
  unsigned long long data = 0;
  int dtype = SYMM_DTYPE_NONE, device = SYMM_CPU, read_only = 0, contiguous = 0;
  if (!PyArg_ParseTuple(description, "KO!iippOO", &data, &PyTuple_Type, &shape, &dtype, &device,
                        &read_only, &contiguous, &keep, &stream)) {
    return -1;
  }
  const Py_ssize_t dimensions = PyTuple_Size(shape);
  if (dimensions > ARRAY_DIMENSIONS) {
    symm_python_refuse("%s: %s has %zd dimensions; at most %d are possible", function, name,
                       dimensions, (int)ARRAY_DIMENSIONS);
    return -1;
  }
  array->count = 1;
  for (Py_ssize_t i = 0; i < dimensions; ++i) {
    array->shape[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
    if (array->shape[i] == -1 && PyErr_Occurred()) {
      return -1;
    }
    if (!multiply(&array->count, array->shape[i])) {
      symm_python_refuse("%s: %s has shape %R, which none can have", function, name, shape);
      return -1;
    }
  }
  array->data = (void*)(uintptr_t)data;
  array->dimensions = (int32_t)dimensions;
  array->dtype = (symm_dtype)dtype;
  array->device = device;
  array->read_only = read_only;
  array->contiguous = contiguous;
  array->stream = stream;
  return 0;
}

static int look_by_python(PyObject* object, const char* function, const char* name,
                          PyObject* stream, symm_python_array* array) {
  if (symm_python_hook.look == NULL) {
    PyErr_SetString(PyExc_RuntimeError, "symm._capi is used without symm");
    return -1;
  }
  PyObject* description =
      PyObject_CallFunction(symm_python_hook.look, "OssO", object, function, name, stream);
  if (description == NULL) {
    return -1;
  }
  if (fill(description, function, name, array) != 0) {
    Py_DECREF(description);
    return -1;
  }
  array->keep = description; /* which has `keep` and `stream` in it */
  return 0;
}

/* 1 for true, 0 for false or nothing; takes the reference. */
static int is_true(PyObject* value) {
  const int result = value != NULL && value != Py_False && PyObject_IsTrue(value) == 1;
  PyErr_Clear();
  Py_XDECREF(value);
  return result;
}

/* What DLPack's table of functions does not say of PyTorch's tensors. 0, or -1 with an exception.
 */
static int refuse_gradients(PyObject* object, const char* function, const char* name) {
  if (is_true(PyObject_GetAttr(object, name_requires_grad))) {
    symm_python_refuse("%s: %s requires grad, and nothing here is differentiated: pass %s.detach()",
                       function, name, name);
    return -1;
  }
  return 0;
}

/* The imaginary part of a conjugate is the negation of its memory. More than one element of such is
 * not contiguous. */
static int refuse_negation(PyObject* object, const char* function, const char* name) {
  if (is_true(PyObject_CallMethodObjArgs(object, name_is_neg, NULL))) {
    symm_python_refuse("%s: %s is the negation of its memory: pass %s.resolve_neg()", function,
                       name, name);
    return -1;
  }
  return 0;
}

int symm_python_look(PyObject* object, const char* function, const char* name, PyObject* stream,
                     symm_python_array* array) {
  array->exchange = NULL;
  array->keep = NULL;
  array->stream = NULL;
  array->read_only = 0;
  const known_type type = know(Py_TYPE(object));
  if (type.is_torch && refuse_gradients(object, function, name) != 0) {
    return -1;
  }
  int result = 1;
  if (type.kind == KIND_ARRAY_STRUCT) {
    result = look_array_struct(object, array);
  } else if (type.kind == KIND_EXCHANGE) {
    result = look_exchange(object, &type, array);
  }
  if (result == 0 && type.is_torch && array->count <= 1) {
    return refuse_negation(object, function, name);
  }
  if (result != 0) {
    result = look_by_python(object, function, name, stream, array);
    if (result == 0 && type.kind == KIND_ARRAY_STRUCT) {
      remember_dtype(object, array->dtype);
    }
  }
  return result;
}

void symm_python_forget(symm_python_array* array) { Py_CLEAR(array->keep); }

int symm_python_look_tensor(const dlpack_tensor* tensor, symm_python_array* array) {
  return copy_tensor(tensor, array);
}

PyObject* symm_python_shape(const symm_python_array* array) {
  PyObject* shape = PyTuple_New(array->dimensions);
  for (int32_t i = 0; shape != NULL && i < array->dimensions; ++i) {
    PyObject* extent = PyLong_FromLongLong(array->shape[i]);
    if (extent == NULL || PyTuple_SetItem(shape, i, extent) != 0) {
      Py_CLEAR(shape);
    }
  }
  return shape;
}

int symm_python_arrays_ready(void) {
  name_array_struct = PyUnicode_InternFromString("__array_struct__");
  name_dtype = PyUnicode_InternFromString("dtype");
  name_requires_grad = PyUnicode_InternFromString("requires_grad");
  name_is_neg = PyUnicode_InternFromString("is_neg");
  return name_array_struct != NULL && name_dtype != NULL && name_requires_grad != NULL &&
                 name_is_neg != NULL
             ? 0
             : -1;
}
