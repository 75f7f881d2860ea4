"""Communicators."""

from __future__ import annotations

import contextlib
import json
from types import TracebackType
from typing import Any, Iterator

from . import _arrays, _capi, _dtypes
from ._capi import all_reduce as _all_reduce
from ._errors import InvalidArgumentError, SymmError
from ._window import Window, _count_of

_DEVICES = {"cpu": _capi.SYMM_CPU, "local": _capi.SYMM_LOCAL_GPU, "current": _capi.SYMM_CURRENT_GPU}


def _device_code(device: Any) -> int:
    """Of "cpu", "local", "current", "cuda:N", an ordinal, or another library's object for a device."""
    if isinstance(device, int) and not isinstance(device, bool):
        if device < 0:
            raise InvalidArgumentError(f"Comm: device {device}; ordinals start at 0, and \"cpu\" is the CPU")
        return device
    text = str(device)
    if text in _DEVICES:
        return _DEVICES[text]
    if text == "cuda":
        return _capi.SYMM_CURRENT_GPU
    if text.startswith("cuda:") and text[5:].isdecimal():
        return int(text[5:])
    raise InvalidArgumentError(
        f'Comm: device {device!r}; known are "cpu", a CUDA ordinal or "cuda:N", "local" and "current"'
    )


def _milliseconds(seconds: float | None, name: str) -> int:
    if seconds is None:
        return 0
    if not 0 < seconds <= 2_000_000:
        raise InvalidArgumentError(f"Comm: {name} {seconds!r}; seconds, above 0 and at most 2000000")
    return max(1, round(seconds * 1000))


def _flags(share_gpu: bool, nccl: bool, strict: bool, sole: bool) -> int:
    return (
        (_capi.SYMM_COMM_SHARE_GPU if share_gpu else 0)
        | (_capi.SYMM_COMM_NCCL if nccl else 0)
        | (_capi.SYMM_COMM_STRICT if strict else 0)
        | (_capi.SYMM_COMM_SOLE if sole else 0)
    )


class Comm:
    """One rank's handle on a group of ranks. See __init__.pyi for every argument."""

    __slots__ = ("_handle", "_rank", "_size", "_device", "__weakref__")

    def __init__(
        self,
        address: str,
        rank: int = -1,
        size: int = -1,
        device: Any = "cpu",
        *,
        name: str | None = None,
        timeout: float | None = None,
        wait_timeout: float | None = None,
        scratch_bytes: int = 0,
        share_gpu: bool = False,
        nccl: bool = False,
        strict: bool = False,
        sole: bool = False,
        nccl_path: str | None = None,
    ) -> None:
        self._handle = None
        self._adopt(
            _capi.flat_comm_create(
                address,
                rank,
                size,
                _device_code(device),
                name,
                nccl_path,
                scratch_bytes,
                _milliseconds(timeout, "timeout"),
                _milliseconds(wait_timeout, "wait_timeout"),
                _flags(share_gpu, nccl, strict, sole),
            )
        )

    def _adopt(self, handle: Any) -> None:
        self._handle = handle
        self._rank: int = _capi.flat_comm_rank(handle)
        self._size: int = _capi.flat_comm_size(handle)
        self._device: int = _capi.flat_comm_device(handle)

    @classmethod
    def from_env(cls, device: Any = "cpu", **options: Any) -> Comm:
        return cls("env://", -1, -1, device, **options)

    # ---- What it is -----------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        return self._rank

    @property
    def size(self) -> int:
        return self._size

    @property
    def device(self) -> str:
        return "cpu" if self._device == _capi.SYMM_CPU else f"cuda:{self._device}"

    @property
    def closed(self) -> bool:
        return self._handle is None

    def __repr__(self) -> str:
        state = ", closed" if self._handle is None else ""
        return f"<symm.Comm rank {self._rank} of {self._size} on {self.device}{state}>"

    def report(self) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(_capi.flat_report(self._handle))
        return result

    def plan(self, shape: Any, dtype: Any, op: str = "sum", window: Window | None = None) -> dict[str, Any]:
        code = _dtypes.parse(dtype, "plan")
        handle = None
        if window is not None:
            handle = window._open()
        result: dict[str, Any] = json.loads(
            _capi.flat_plan(self._handle, handle, _count_of(shape, "plan")[1], code, _op_code(op))
        )
        return result

    @property
    def nccl(self) -> int:
        return int(_capi.flat_comm_nccl(self._handle))

    # ---- Collective calls -----------------------------------------------------------------------

    def all_reduce(self, x: Any, out: Any = None, op: str = "sum", stream: Any = None) -> Any:
        return _all_reduce(self._handle, x, out, op, stream)

    def barrier(self, stream: Any = None) -> None:
        number = 0
        if self._device != _capi.SYMM_CPU:
            number = _arrays.stream_number(stream, None, self._device)
        elif stream is not None:
            raise InvalidArgumentError(f"barrier: stream {stream!r}, and the communicator works on the CPU, which has none")
        with self._blaming():
            _capi.flat_comm_barrier(self._handle, number)

    def split(
        self,
        color: int | None,
        key: int = 0,
        *,
        name: str | None = None,
        timeout: float | None = None,
        wait_timeout: float | None = None,
        scratch_bytes: int = 0,
        share_gpu: bool = False,
        nccl: bool = False,
        strict: bool = False,
        sole: bool = False,
        nccl_path: str | None = None,
    ) -> Comm | None:
        with self._blaming():
            handle = _capi.flat_comm_split(
                self._handle,
                _capi.SYMM_NO_COLOR if color is None else color,
                key,
                name,
                nccl_path,
                scratch_bytes,
                _milliseconds(timeout, "timeout"),
                _milliseconds(wait_timeout, "wait_timeout"),
                _flags(share_gpu, nccl, strict, sole),
            )
        if handle is None:
            return None
        comm = Comm.__new__(Comm)
        comm._adopt(handle)
        return comm

    def window(self, shape: Any, dtype: Any = "float32", *, nccl: bool = False) -> Window:
        extents, count = _count_of(shape, "window")
        code = _dtypes.parse(dtype, "window")
        with self._blaming():
            handle = _capi.flat_window_alloc(
                self._handle, count * _dtypes.SIZES[code], _capi.SYMM_WINDOW_NCCL if nccl else 0
            )
        return Window(self, handle, extents, code, None)

    def register(self, tensor: Any, *, nccl: bool = False, fd: int | None = None, fd_offset: int = 0) -> Window:
        address, extents, code, device, read_only, contiguous = _capi.look(tensor, "register", "tensor")
        if device != self._device and not (device == _arrays.UNKNOWN_GPU and self._device >= 0):
            raise InvalidArgumentError(f"register: the tensor is not on the communicator's device, {self.device}")
        if read_only:
            raise InvalidArgumentError("register: the tensor is read-only")
        if not contiguous:
            raise InvalidArgumentError("register: the tensor is not contiguous in C order")
        count = _count_of(extents, "register")[1]
        flags = (_capi.SYMM_WINDOW_NCCL if nccl else 0) | (_capi.SYMM_WINDOW_FD if fd is not None else 0)
        with self._blaming():
            handle = _capi.flat_window_register(
                self._handle, address, count * _dtypes.SIZES[code], flags, fd or 0, fd_offset
            )
        return Window(self, handle, extents, code, tensor)

    # ---- Failures and the end -------------------------------------------------------------------

    def check(self) -> None:
        with self._blaming():
            _capi.flat_comm_check(self._handle)

    def abort(self) -> None:
        _capi.symm_comm_abort(self._handle)

    @contextlib.contextmanager
    def _blaming(self) -> Iterator[None]:
        """Adds the rank to blame to errors that end the communicator."""
        try:
            yield
        except SymmError as error:
            if self._handle is not None and error.rank is None and not isinstance(error, InvalidArgumentError):
                rank = _capi.flat_comm_failed_rank(self._handle)
                error.rank = rank if rank >= 0 else None
            raise

    def close(self) -> None:
        self._handle = None

    def __enter__(self) -> Comm:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("a symm.Comm belongs to its process and cannot be pickled or copied")


def _op_code(op: str) -> int:
    codes = {
        "sum": _capi.SYMM_SUM,
        "prod": _capi.SYMM_PROD,
        "max": _capi.SYMM_MAX,
        "min": _capi.SYMM_MIN,
        "avg": _capi.SYMM_AVG,
    }
    if op not in codes:
        raise InvalidArgumentError(f"op {op!r}; known are {', '.join(codes)}")
    return codes[op]
