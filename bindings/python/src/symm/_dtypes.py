"""Types of elements, by the names that NumPy, ml_dtypes, PyTorch and symm give them."""

from __future__ import annotations

import sys
from typing import Any

from . import _capi
from ._errors import InvalidArgumentError

#: Name to symm_dtype.
CODES: dict[str, int] = {
    "int8": _capi.SYMM_INT8,
    "uint8": _capi.SYMM_UINT8,
    "int32": _capi.SYMM_INT32,
    "uint32": _capi.SYMM_UINT32,
    "int64": _capi.SYMM_INT64,
    "uint64": _capi.SYMM_UINT64,
    "float16": _capi.SYMM_FLOAT16,
    "float32": _capi.SYMM_FLOAT32,
    "float64": _capi.SYMM_FLOAT64,
    "bfloat16": _capi.SYMM_BFLOAT16,
    "float8_e4m3": _capi.SYMM_FLOAT8_E4M3,
    "float8_e5m2": _capi.SYMM_FLOAT8_E5M2,
}
NAMES: dict[int, str] = {code: name for name, code in CODES.items()}
# ml_dtypes' and PyTorch's name of OCP E4M3, which has no infinities ("fn"). ml_dtypes' float8_e4m3,
# which has them, is another type; so that name is only taken from a str.
_SYNONYMS = {"float8_e4m3fn": "float8_e4m3"}

# Of the array interface: what NumPy calls these. ml_dtypes' are opaque there.
TYPESTRS: dict[int, str] = {
    _capi.SYMM_INT8: "|i1",
    _capi.SYMM_UINT8: "|u1",
    _capi.SYMM_INT32: "<i4",
    _capi.SYMM_UINT32: "<u4",
    _capi.SYMM_INT64: "<i8",
    _capi.SYMM_UINT64: "<u8",
    _capi.SYMM_FLOAT16: "<f2",
    _capi.SYMM_FLOAT32: "<f4",
    _capi.SYMM_FLOAT64: "<f8",
    _capi.SYMM_BFLOAT16: "<V2",
    _capi.SYMM_FLOAT8_E4M3: "|V1",
    _capi.SYMM_FLOAT8_E5M2: "|V1",
}
SIZES: dict[int, int] = {code: int(text[2:]) for code, text in TYPESTRS.items()}
# Both ways only where the string says it all.
CODES_OF_TYPESTRS: dict[str, int] = {
    text: code for code, text in TYPESTRS.items() if "V" not in text
}

_NUMPY_ORDER = {"little": "<", "big": ">"}[sys.byteorder]


def of_library(dtype: Any) -> int | None:
    """symm_dtype of a NumPy, ml_dtypes or PyTorch dtype, instance or scalar type, or of the name in
    a symm.View; None for one that symm lacks."""
    if isinstance(dtype, str):
        return CODES.get(dtype)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(dtype, type) and issubclass(dtype, numpy.generic):
        dtype = numpy.dtype(dtype)  # some types have several names
    text = str(dtype)
    name: str
    if text.startswith("torch."):
        name = text[len("torch.") :]
    else:
        if getattr(dtype, "byteorder", "=") not in ("=", "|", _NUMPY_ORDER):
            return None
        name = str(getattr(dtype, "name", None) or getattr(dtype, "__name__", ""))
        if name == "float8_e4m3":
            return None
    return CODES.get(_SYNONYMS.get(name, name))


def parse(dtype: Any, function: str) -> int:
    """symm_dtype of an argument `dtype`, which may also be a name."""
    if isinstance(dtype, str):
        code = CODES.get(_SYNONYMS.get(dtype, dtype))
    elif dtype is float:
        code = _capi.SYMM_FLOAT64
    elif dtype is int:
        code = _capi.SYMM_INT64
    else:
        code = of_library(dtype)
    if code is None:
        raise InvalidArgumentError(f"{function}: dtype {dtype!r}; known are {', '.join(CODES)}")
    return code


def numpy_dtype(code: int) -> Any:
    """NumPy's dtype, of ml_dtypes for those that NumPy lacks."""
    import numpy

    if code not in (_capi.SYMM_BFLOAT16, _capi.SYMM_FLOAT8_E4M3, _capi.SYMM_FLOAT8_E5M2):
        return numpy.dtype(NAMES[code])
    try:
        import ml_dtypes
    except ImportError as error:
        raise ImportError(
            f"NumPy has {NAMES[code]} by the package ml_dtypes, which is not installed"
        ) from error
    return numpy.dtype(
        {
            _capi.SYMM_BFLOAT16: ml_dtypes.bfloat16,
            _capi.SYMM_FLOAT8_E4M3: ml_dtypes.float8_e4m3fn,
            _capi.SYMM_FLOAT8_E5M2: ml_dtypes.float8_e5m2,
        }[code]
    )
