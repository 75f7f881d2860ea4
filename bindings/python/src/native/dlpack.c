#include "native.h"

static const char name_old[] = "dltensor";
static const char name_versioned[] = "dltensor_versioned";

/* What an exported tensor is made of: the struct that goes out, and what keeps it alive. The
 * memory's owner is a Python object, so that a tensor elsewhere counts like any other reference to
 * it. */
typedef struct exported {
  union {
    dlpack_managed old;
    dlpack_managed_versioned versioned;
  } managed;
  PyObject* owner;
  int64_t sizes[]; /* shape, then strides */
} exported;

static void release(exported* tensor) {
  /* Consumers free on threads of their own, and may do so after the interpreter is gone. */
  if (Py_IsInitialized()) {
    const PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF(tensor->owner);
    PyGILState_Release(state);
  }
  free(tensor);
}

static void delete_old(dlpack_managed* self) { release(self->context); }
static void delete_versioned(dlpack_managed_versioned* self) { release(self->context); }

/* A consumer renames the capsule, and calls the deleter itself. */
static void free_capsule(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, name_old)) {
    delete_old(PyCapsule_GetPointer(capsule, name_old));
  } else if (PyCapsule_IsValid(capsule, name_versioned)) {
    delete_versioned(PyCapsule_GetPointer(capsule, name_versioned));
  }
}

/* (owner, address, shape, dtype, device, versioned) -> capsule */
PyObject* symm_python_dlpack_export(PyObject* module, PyObject* args) {
  (void)module;
  PyObject *owner, *shape;
  unsigned long long address;
  int dtype, device, versioned;
  if (!PyArg_ParseTuple(args, "OKO!iip", &owner, &address, &PyTuple_Type, &shape, &dtype, &device,
                        &versioned)) {
    return NULL;
  }
  if (symm_python_dtype_size((symm_dtype)dtype) == 0) {
    return PyErr_Format(PyExc_ValueError, "dtype %d", dtype);
  }
  const Py_ssize_t dimensions = PyTuple_Size(shape);
  exported* tensor = calloc(1, sizeof *tensor + 2 * (size_t)dimensions * sizeof tensor->sizes[0]);
  if (tensor == NULL) {
    return PyErr_NoMemory();
  }
  dlpack_tensor view = {0};
  view.data = (void*)(uintptr_t)address;
  view.device.type = device == SYMM_CPU ? DLPACK_CPU : DLPACK_CUDA;
  view.device.id = device == SYMM_CPU ? 0 : device;
  view.ndim = (int32_t)dimensions;
  view.dtype = symm_python_dtype_to_dlpack((symm_dtype)dtype);
  view.shape = tensor->sizes;
  view.strides = tensor->sizes + dimensions;
  int64_t stride = 1;
  for (Py_ssize_t i = dimensions; i-- > 0;) {
    view.shape[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
    view.strides[i] = stride;
    stride *= view.shape[i];
  }
  if (PyErr_Occurred()) {
    free(tensor);
    return NULL;
  }
  PyObject* capsule;
  if (versioned) {
    dlpack_managed_versioned* managed = &tensor->managed.versioned;
    managed->version.major = 1;
    managed->context = tensor;
    managed->deleter = delete_versioned;
    managed->tensor = view;
    capsule = PyCapsule_New(managed, name_versioned, free_capsule);
  } else {
    dlpack_managed* managed = &tensor->managed.old;
    managed->tensor = view;
    managed->context = tensor;
    managed->deleter = delete_old;
    capsule = PyCapsule_New(managed, name_old, free_capsule);
  }
  if (capsule == NULL) {
    free(tensor);
    return NULL;
  }
  Py_INCREF(owner);
  tensor->owner = owner;
  return capsule;
}

/* (data, shape, dtype, device, read_only, contiguous) of a capsule that stays the caller's,
 * unconsumed: its own destructor gives the tensor back. None for elements or a device that symm
 * does not know. */
PyObject* symm_python_dlpack_look(PyObject* module, PyObject* capsule) {
  (void)module;
  symm_python_array array;
  const dlpack_tensor* tensor;
  array.read_only = 0;
  if (PyCapsule_IsValid(capsule, name_versioned)) {
    const dlpack_managed_versioned* managed = PyCapsule_GetPointer(capsule, name_versioned);
    if (managed->version.major != 1) {
      return PyErr_Format(PyExc_BufferError, "DLPack version %u.%u; 1.x is known here",
                          (unsigned)managed->version.major, (unsigned)managed->version.minor);
    }
    array.read_only = (managed->flags & DLPACK_FLAG_READ_ONLY) != 0;
    tensor = &managed->tensor;
  } else if (PyCapsule_IsValid(capsule, name_old)) {
    tensor = &((const dlpack_managed*)PyCapsule_GetPointer(capsule, name_old))->tensor;
  } else {
    return PyErr_Format(PyExc_TypeError, "__dlpack__ gave %R, which is no fresh DLPack capsule",
                        capsule);
  }
  if (symm_python_look_tensor(tensor, &array) != 0) {
    Py_RETURN_NONE;
  }
  PyObject* shape = symm_python_shape(&array);
  if (shape == NULL) {
    return NULL;
  }
  return Py_BuildValue("(KNiiNN)", (unsigned long long)(uintptr_t)array.data, shape,
                       (int)array.dtype, (int)array.device, PyBool_FromLong(array.read_only),
                       PyBool_FromLong(array.contiguous));
}
