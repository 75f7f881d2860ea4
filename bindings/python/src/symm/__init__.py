"""Symmetric memory windows and one-shot all-reduce. See __init__.pyi, and help() of every name here."""

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
    return str(_capi.flat_address_create(host))


def report() -> dict[str, _Any]:
    result: dict[str, _Any] = _json.loads(_capi.process_report())
    return result


def get_include() -> str:
    return _os.path.join(_os.path.dirname(__file__), "include")


def get_library() -> str:
    return _os.path.join(_os.path.dirname(__file__), "lib", "libsymm.so.0")
