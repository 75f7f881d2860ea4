"""What symm.h promises about results, in NumPy: operands in rank order, small floats summed in fp32 and rounded once."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

DTYPES: dict[str, np.dtype[Any]] = {
    "int8": np.dtype(np.int8),
    "uint8": np.dtype(np.uint8),
    "int32": np.dtype(np.int32),
    "uint32": np.dtype(np.uint32),
    "int64": np.dtype(np.int64),
    "uint64": np.dtype(np.uint64),
    "float16": np.dtype(np.float16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float8_e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
}
OPS = ("sum", "prod", "max", "min", "avg")


def is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" or dtype in (
        DTYPES["bfloat16"],
        DTYPES["float8_e4m3"],
        DTYPES["float8_e5m2"],
    )


def operand(dtype: np.dtype[Any], shape: Any, seed: Any) -> np.ndarray[Any, Any]:
    random = np.random.default_rng(seed)
    if not is_float(dtype):
        info = np.iinfo(dtype)
        return random.integers(info.min, info.max, size=shape, dtype=dtype, endpoint=True)
    return np.asarray(random.uniform(-2, 2, size=shape)).astype(dtype)


def reduce(operands: list[np.ndarray[Any, Any]], op: str) -> np.ndarray[Any, Any]:
    dtype = operands[0].dtype
    small = is_float(dtype) and dtype.itemsize < 4
    wide = [x.astype(np.float32) if small else x for x in operands]
    total = wide[0].copy()
    with np.errstate(all="ignore"):
        for x in wide[1:]:
            if op in ("sum", "avg"):
                total = total + x
            elif op == "prod":
                total = total * x
            else:
                total = np.maximum(total, x) if op == "max" else np.minimum(total, x)
        if op == "avg":
            if is_float(dtype):
                total = total / total.dtype.type(len(operands))
            else:
                # Towards zero, which neither // nor a float division is.
                quotient = np.abs(total.astype(object)) // len(operands)
                total = (quotient * np.where(total < 0, -1, 1)).astype(dtype)
        if dtype.itemsize == 1 and small:
            limit = float(ml_dtypes.finfo(dtype).max)
            total = np.clip(total, -limit, limit)
        return np.asarray(total).astype(dtype)
