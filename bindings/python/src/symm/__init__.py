"""Symmetric memory windows and one-shot all-reduce, for arrays of NumPy, PyTorch, CuPy and JAX.

    with symm.Comm.from_env() as comm:
        total = comm.all_reduce(x)

Every rank makes a Comm; see there for what holds for every call."""

from __future__ import annotations

import json as _json
import os as _os
from typing import Any as _Any

from . import _arrays, _capi, _errors
from ._comm import Comm
from ._errors import (
    AbortedError,
    CudaError,
    InternalError,
    InvalidArgumentError,
    MismatchError,
    NcclError,
    OutOfMemoryError,
    PeerError,
    SymmError,
    SystemCallError,
    TimeoutError,
    UnsupportedError,
)
from ._window import View, Window

# Another libsymm.so.0 may have been loaded before, which then is the one that is used here too.
if not (
    _capi.SYMM_VERSION_MAJOR * 1000000 + _capi.SYMM_VERSION_MINOR * 1000
    <= _capi.symm_version()
    < (_capi.SYMM_VERSION_MAJOR + 1) * 1000000
):
    raise ImportError(
        f"this process has libsymm of version number {_capi.symm_version()}, and the package symm "
        f"is for {_capi.SYMM_VERSION_MAJOR}.{_capi.SYMM_VERSION_MINOR}: load that of "
        "symm.get_library(), or none, before"
    )
_capi.set_hooks(_errors.make, _arrays.look, _arrays.empty_like, _arrays.stream_number)

__all__ = [
    "AbortedError",
    "Comm",
    "CudaError",
    "InternalError",
    "InvalidArgumentError",
    "MismatchError",
    "NcclError",
    "OutOfMemoryError",
    "PeerError",
    "SymmError",
    "SystemCallError",
    "TimeoutError",
    "UnsupportedError",
    "View",
    "Window",
    "create_address",
    "get_include",
    "get_library",
    "report",
]


def _version() -> str:
    number = _capi.symm_version()
    return f"{number // 1000000}.{number // 1000 % 1000}.{number % 1000}"


__version__ = _version()


def create_address(host: str | None = None) -> str:
    """A new address, served by this process until it exits, for Comm() on every rank; hand it over
    by any means.

    host: the name or number that others reach this process by; None: every interface it has."""
    return str(_capi.flat_address_create(host))


def report() -> dict[str, _Any]:
    """About this process and machine: library, devices, drivers."""
    result: dict[str, _Any] = _json.loads(_capi.process_report())
    return result


def get_include() -> str:
    """The directory of symm.h, for programs in C."""
    return _os.path.join(_os.path.dirname(__file__), "include")


def get_library() -> str:
    """The shared library that this package uses, for programs in C and for dlopen()."""
    return _os.path.join(_os.path.dirname(__file__), "lib", "libsymm.so.0")
