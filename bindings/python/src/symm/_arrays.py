"""Looking at arrays of other libraries, and making arrays like them.

The C code knows NumPy's __array_struct__ and DLPack's table of C functions. All else comes here:
other protocols, types that those do not tell apart, and the words for what is refused.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Callable

from . import _capi, _dtypes
from ._errors import InvalidArgumentError

#: On some GPU: the array says no more.
UNKNOWN_GPU = -4

# __dlpack_device__'s numbers.
_DLPACK_CPU = (1, 3)
_DLPACK_CUDA = (2, 13)

# What the C code is told: address, shape, symm_dtype, device, read-only?, contiguous?, what to keep
# alive meanwhile, and the array's own word on streams.
Look = tuple[int, "tuple[int, ...]", int, int, bool, bool, Any, Any]


def look(x: Any, function: str, name: str, stream: Any) -> Look:
    """Called by the C code for what it does not know itself."""
    refuse_special(x, function, name)
    kind, library = type(x), _library(x)
    if library == "torch":
        return _by_torch(x, function, name)
    if hasattr(x, "__array_interface__"):
        return _by_array_interface(x, function, name)
    if library == "jax":
        # Its arrays never change, whatever its protocols say.
        seen = _by_dlpack(x, function, name, stream)
        return (*seen[:4], True, *seen[5:])
    if hasattr(x, "__cuda_array_interface__"):
        return _by_cuda_array_interface(x, function, name)
    if hasattr(kind, "__dlpack__"):
        return _by_dlpack(x, function, name, stream)
    try:
        view = memoryview(x)
    except TypeError:
        raise TypeError(
            f"{function}: {name} must be an array (NumPy, PyTorch, CuPy, JAX, or anything with "
            "__array_interface__, __cuda_array_interface__, __dlpack__ or a writable buffer), not "
            f"{kind.__module__}.{kind.__qualname__}"
        ) from None
    return _by_buffer(view, function, name)


def refuse_special(x: Any, function: str, name: str) -> None:
    """Arrays that are more than their memory."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return
    if isinstance(x, numpy.generic):
        raise TypeError(
            f"{function}: {name} is a scalar of NumPy, which has no memory of its own: "
            "pass an array"
        )
    if isinstance(x, numpy.ma.MaskedArray):
        raise InvalidArgumentError(
            f"{function}: {name} is a masked array: pass {name}.filled(value) or {name}.data"
        )


def _refuse_dtype(function: str, name: str, dtype: Any) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{function}: {name} has dtype {dtype}; known are {', '.join(_dtypes.CODES)}"
    )


def _contiguous(shape: tuple[int, ...], strides: tuple[int, ...] | None, itemsize: int) -> bool:
    if strides is None or 0 in shape:
        return True
    expected = itemsize
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


def _interface_dtype(x: Any, typestr: str, function: str, name: str) -> int:
    """The dictionary's string, or the name of x.dtype: ml_dtypes' types are opaque in the
    former."""
    code = _dtypes.CODES_OF_TYPESTRS.get(typestr)
    if code is None and typestr[1:2] in "Vf":
        code = _dtypes.of_library(getattr(x, "dtype", None))
        if code is not None and _dtypes.SIZES[code] != int(typestr[2:]):
            code = None
    if code is None:
        dtype = getattr(x, "dtype", typestr)
        order = " (not in this machine's byte order: pass x.astype(x.dtype.newbyteorder('=')))"
        raise _refuse_dtype(function, name, f"{dtype!s}{order if typestr[:1] == '>' else ''}")
    return code


def _by_torch(x: Any, function: str, name: str) -> Look:
    """Of a PyTorch without DLPack's table of C functions, and of tensors that the table refuses."""
    code = _dtypes.of_library(x.dtype)
    if code is None:
        raise _refuse_dtype(function, name, x.dtype)
    kind = x.device.type
    if kind not in ("cpu", "cuda"):
        raise InvalidArgumentError(f"{function}: {name} is on device {x.device}, which symm lacks")
    if str(x.layout) != "torch.strided":
        raise InvalidArgumentError(
            f"{function}: {name} has layout {x.layout}; torch.strided is needed"
        )
    if x.is_neg():
        raise InvalidArgumentError(
            f"{function}: {name} is the negation of its memory: pass {name}.resolve_neg()"
        )
    try:
        address = x.data_ptr()
    except RuntimeError as error:
        raise InvalidArgumentError(
            f"{function}: {name} does not give its memory: {error}"
        ) from error
    device = _capi.SYMM_CPU if kind == "cpu" else x.device.index
    return address, tuple(x.shape), code, device, False, x.is_contiguous(), None, None


def _by_array_interface(x: Any, function: str, name: str) -> Look:
    interface = x.__array_interface__
    shape = tuple(interface["shape"])
    code = _interface_dtype(x, interface["typestr"], function, name)
    data = interface.get("data")
    if not isinstance(data, tuple) or "mask" in interface:
        raise InvalidArgumentError(
            f"{function}: the __array_interface__ of {name} gives no plain address"
        )
    contiguous = _contiguous(shape, interface.get("strides"), _dtypes.SIZES[code])
    return data[0] or 0, shape, code, _capi.SYMM_CPU, bool(data[1]), contiguous, interface, None


def _by_cuda_array_interface(x: Any, function: str, name: str) -> Look:
    interface = x.__cuda_array_interface__
    shape = tuple(interface["shape"])
    code = _interface_dtype(x, interface["typestr"], function, name)
    if interface.get("mask") is not None:
        raise InvalidArgumentError(f"{function}: {name} has a mask")
    contiguous = _contiguous(shape, interface.get("strides"), _dtypes.SIZES[code])
    device = UNKNOWN_GPU
    if hasattr(x, "__dlpack_device__"):
        device = x.__dlpack_device__()[1]
    else:
        device = getattr(getattr(x, "device", None), "id", UNKNOWN_GPU)
    address, read_only = interface["data"]
    return (
        address or 0,
        shape,
        code,
        device,
        bool(read_only),
        contiguous,
        interface,
        interface.get("stream"),
    )


def _by_dlpack(x: Any, function: str, name: str, stream: Any) -> Look:
    try:
        kind, device = x.__dlpack_device__()
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"{function}: {name} does not say where its memory is: {error}"
        ) from error
    hint = None
    options: dict[str, Any] = {}
    if kind in _DLPACK_CUDA:
        hint = stream_number(stream, None, device)
        # DLPack has no number 0: the legacy default stream is 1.
        options["stream"] = hint or 1
    elif kind not in _DLPACK_CPU:
        raise InvalidArgumentError(
            f"{function}: {name} is on a device of DLPack's kind {int(kind)}, which symm lacks"
        )
    try:
        try:
            capsule = x.__dlpack__(max_version=(1, 0), copy=False, **options)
        except TypeError:  # of a producer from before DLPack 1.0
            capsule = x.__dlpack__(**options)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"{function}: {name} does not give its memory: {error}"
        ) from error
    seen = _capi.dlpack_look(capsule)
    if seen is None:
        raise _refuse_dtype(function, name, getattr(x, "dtype", "unknown"))
    address, shape, code, where, read_only, contiguous = seen
    return address, shape, code, where, read_only, contiguous, capsule, hint


_BUFFER_DTYPES = {
    **dict.fromkeys("bilq", "int"),
    **dict.fromkeys("BILQ", "uint"),
    **dict.fromkeys("efd", "float"),
}


def _by_buffer(view: memoryview, function: str, name: str) -> Look:
    kind = _BUFFER_DTYPES.get(view.format.lstrip("@=<"))
    code = _dtypes.CODES.get(f"{kind}{8 * view.itemsize}")
    if code is None:
        raise _refuse_dtype(function, name, f"of the buffer format {view.format!r}")
    if view.readonly:
        raise InvalidArgumentError(
            f"{function}: {name} is a read-only buffer: pass a bytearray, an array.array or "
            "a NumPy array"
        )
    shape = tuple(view.shape or ())
    if not view.c_contiguous or view.nbytes == 0:
        return 0, shape, code, _capi.SYMM_CPU, False, view.nbytes == 0, view, None
    keep = (ctypes.c_char * view.nbytes).from_buffer(view.cast("B"))
    return ctypes.addressof(keep), shape, code, _capi.SYMM_CPU, False, True, keep, None


# ---- Results ------------------------------------------------------------------------------------


def _library(x: Any) -> str:
    """The library that x is an array of."""
    for kind in type(x).__mro__:
        name = kind.__module__.partition(".")[0]
        if name in ("numpy", "torch", "cupy", "array", "jax", "jaxlib"):
            return "jax" if name == "jaxlib" else name
    return ""


def empty_like(x: Any) -> tuple[Any, Callable[[Any], Any] | None]:
    """What a result for x is written to, and what makes the result of that."""
    library = _library(x)
    if library == "numpy":
        import numpy

        return numpy.empty(x.shape, x.dtype), None
    if library == "torch":
        import torch

        return torch.empty_like(x, requires_grad=False, memory_format=torch.contiguous_format), None
    if library == "cupy":
        import cupy

        with cupy.cuda.Device(x.device.id):
            return cupy.empty(x.shape, x.dtype), None
    if library == "jax" and x.__dlpack_device__()[0] in _DLPACK_CPU:
        import jax
        import numpy

        return numpy.empty(x.shape, x.dtype), lambda result: jax.device_put(
            result, x.sharding, may_alias=False
        )
    if library == "array":
        return x[:], None
    kind = type(x)
    where = " on a GPU" if library == "jax" else ""
    raise TypeError(
        f"all_reduce: out is needed for an x of {kind.__module__}.{kind.__qualname__}{where}: "
        "symm does not know how to make another"
    )


# ---- Streams ------------------------------------------------------------------------------------


def stream_number(wanted: Any, hint: Any, device: int) -> int:
    """The cudaStream_t of an argument `stream`; with None that of the array's own word, else the
    current one of PyTorch or CuPy, whichever this process uses, else the legacy default stream."""
    if wanted is not None:
        return _explicit_stream(wanted)
    if hint is not None:
        return int(hint)
    return current_stream(device)


def _explicit_stream(stream: Any) -> int:
    if isinstance(stream, int) and not isinstance(stream, bool):
        if stream < 0:
            raise InvalidArgumentError(f"stream {stream}: a cudaStream_t is not negative")
        return stream
    for attribute in ("cuda_stream", "ptr", "handle"):  # PyTorch, CuPy, Numba and others
        value = getattr(stream, attribute, None)
        value = getattr(value, "value", value)  # of ctypes
        if isinstance(value, int):
            return value
    if hasattr(stream, "__cuda_stream__"):
        protocol = stream.__cuda_stream__
        return int((protocol() if callable(protocol) else protocol)[1])
    raise TypeError(
        "stream must be an int (cudaStream_t) or a stream of PyTorch, CuPy or CUDA Python, not "
        f"{stream!r}"
    )


def current_stream(device: int) -> int:
    """Of PyTorch where it has used CUDA, else of CuPy where that is imported, else 0."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return int(torch.cuda.current_stream(device).cuda_stream)
    cupy = sys.modules.get("cupy")
    if cupy is not None:
        with cupy.cuda.Device(device):
            return int(cupy.cuda.get_current_stream().ptr)
    return 0
