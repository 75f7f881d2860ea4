"""Communicators."""

from __future__ import annotations

import contextlib
import json
import operator
from types import TracebackType
from typing import Any, Iterator

from . import _arrays, _capi, _dtypes
from ._capi import all_reduce as _all_reduce
from ._errors import InvalidArgumentError, SymmError
from ._window import Window, count_of, make_window

_DEVICES = {"cpu": _capi.SYMM_CPU, "local": _capi.SYMM_LOCAL_GPU, "current": _capi.SYMM_CURRENT_GPU}
_OPS = {
    "sum": _capi.SYMM_SUM,
    "prod": _capi.SYMM_PROD,
    "max": _capi.SYMM_MAX,
    "min": _capi.SYMM_MIN,
    "avg": _capi.SYMM_AVG,
}


def _device_code(device: Any) -> int:
    """Of "cpu", "local", "current", "cuda:N", an ordinal, or another library's object for a
    device."""
    if isinstance(device, int) and not isinstance(device, bool):
        if device < 0:
            raise InvalidArgumentError(
                f'Comm: device {device}; ordinals start at 0, and "cpu" is the CPU'
            )
        return device
    text = str(device)
    if text in _DEVICES:
        return _DEVICES[text]
    if text == "cuda":
        return _capi.SYMM_CURRENT_GPU
    if text.startswith("cuda:") and text[5:].isdecimal():
        return int(text[5:])
    raise InvalidArgumentError(
        f'Comm: device {device!r}; known are "cpu", a CUDA ordinal or "cuda:N", "local" and '
        '"current"'
    )


def _int32(value: Any, function: str, name: str) -> int:
    number = operator.index(value)
    if not -(2**31) <= number < 2**31:
        raise InvalidArgumentError(f"{function}: {name} {number} is not a 32-bit integer")
    return number


def _milliseconds(seconds: float | None, function: str, name: str) -> int:
    if seconds is None:
        return 0
    if not 0 < seconds <= 2_000_000:
        raise InvalidArgumentError(
            f"{function}: {name} {seconds!r}; seconds, above 0 and at most 2000000"
        )
    return max(1, round(seconds * 1000))


def _options(
    function: str,
    name: str | None = None,
    timeout: float | None = None,
    wait_timeout: float | None = None,
    scratch_bytes: int = 0,
    share_gpu: bool = False,
    nccl: bool = False,
    strict: bool = False,
    sole: bool = False,
    nccl_path: str | None = None,
) -> tuple[Any, ...]:
    """As flat_comm_create and flat_comm_split take them."""
    if name is not None and "\0" in name:
        raise InvalidArgumentError(f"{function}: name {name!r} has a NUL in it")
    scratch = operator.index(scratch_bytes)
    if not 0 <= scratch < 2**64:
        raise InvalidArgumentError(f"{function}: scratch_bytes {scratch}")
    return (
        name,
        nccl_path,
        scratch,
        _milliseconds(timeout, function, "timeout"),
        _milliseconds(wait_timeout, function, "wait_timeout"),
        (_capi.SYMM_COMM_SHARE_GPU if share_gpu else 0)
        | (_capi.SYMM_COMM_NCCL if nccl else 0)
        | (_capi.SYMM_COMM_STRICT if strict else 0)
        | (_capi.SYMM_COMM_SOLE if sole else 0),
    )


class Comm:
    """One rank's handle on a group of ranks.

    Collective calls (create, split, barrier, window, register, all_reduce) are made by every rank,
    in the same order. Different communicators may be used by different threads at once; the calls
    on one are serialised, and their order is the caller's business. check, abort, report and the
    properties may be used at any time by any thread. Calls that wait let other threads run. Ctrl-C
    is seen when such a call returns: at the latest at its deadline, or once another thread calls
    abort().

    Errors that name a failure of the group (TimeoutError, PeerError, MismatchError, AbortedError,
    CudaError, NcclError, InternalError) end the communicator and its windows for good: every later
    call raises the same. Create another one, by a new name.

    In a child of os.fork() communicators and windows of the parent raise InvalidArgumentError."""

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
        """Collective over the `size` callers with one address and one name; waits until all are
        here.

        address: of create_address(), "tcp://host:port" (rank 0 serves), "file:///path" or "env://"
            (a launcher's variables, from which rank and size come too where they are -1).
        device: "cpu"; a CUDA ordinal or "cuda:N"; "local" (the only visible GPU, or the one of the
            launcher's local rank); "current" (the CUDA runtime's current device of this thread);
            torch.device and the like.
        name: tells apart communicators created over one address.
        timeout, wait_timeout: seconds; deadlines of set-up (300), and of all-reduces and barriers
            (600).
        scratch_bytes: the most memory for scratch on each rank (128 MiB); larger messages go in
            pieces.
        share_gpu: several ranks may use one GPU.
        nccl: create the NCCL communicator even where it is not needed; nccl_path: which libnccl.so.
        strict: fail rather than use NCCL, whose order of operands differs.
        sole: no other communicator works on these GPUs meanwhile, so that grids may be larger.

        name, timeouts, scratch_bytes and flags must be equal on every rank."""
        self._handle = None
        if not isinstance(address, str):
            raise TypeError(f"Comm: address must be a str, not {address!r}")
        self._adopt(
            _capi.flat_comm_create(
                address,
                _int32(rank, "Comm", "rank"),
                _int32(size, "Comm", "size"),
                _device_code(device),
                *_options(
                    "Comm",
                    name,
                    timeout,
                    wait_timeout,
                    scratch_bytes,
                    share_gpu,
                    nccl,
                    strict,
                    sole,
                    nccl_path,
                ),
            )
        )

    def _adopt(self, handle: Any) -> None:
        self._rank: int = _capi.flat_comm_rank(handle)
        self._size: int = _capi.flat_comm_size(handle)
        self._device: int = _capi.flat_comm_device(handle)
        self._handle = handle

    @classmethod
    def from_env(
        cls,
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
    ) -> Comm:
        """Over "env://": address, rank and size by the launcher's variables (torchrun, Open MPI,
        Slurm and others)."""
        return cls(
            "env://",
            device=device,
            name=name,
            timeout=timeout,
            wait_timeout=wait_timeout,
            scratch_bytes=scratch_bytes,
            share_gpu=share_gpu,
            nccl=nccl,
            strict=strict,
            sole=sole,
            nccl_path=nccl_path,
        )

    # ---- What it is -----------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        """This rank, 0 and up."""
        return self._rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._size

    @property
    def device(self) -> str:
        """Where it works: "cpu", "cuda:0" and so on."""
        return "cpu" if self._device == _capi.SYMM_CPU else f"cuda:{self._device}"

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._handle is None

    def __repr__(self) -> str:
        state = ", closed" if self._handle is None else ""
        return f"<symm.Comm rank {self._rank} of {self._size} on {self.device}{state}>"

    def report(self) -> dict[str, Any]:
        """About this communicator: devices, how each peer is reached and why not better, the error
        that ended it."""
        result: dict[str, Any] = json.loads(_capi.flat_report(self._handle))
        return result

    def plan(
        self, shape: Any, dtype: Any, op: str = "sum", window: Window | None = None
    ) -> dict[str, Any]:
        """Which path an all-reduce of that shape, or number of elements, would take, and why not a
        faster one."""
        if op not in _OPS:
            raise InvalidArgumentError(f"plan: op {op!r}; known are {', '.join(_OPS)}")
        handle = None if window is None else window.open_handle()
        count = count_of(shape, "plan")[1]
        text = _capi.flat_plan(self._handle, handle, count, _dtypes.parse(dtype, "plan"), _OPS[op])
        result: dict[str, Any] = json.loads(text)
        return result

    @property
    def nccl(self) -> int:
        """The ncclComm_t inside, still symm's; UnsupportedError if there is none."""
        return int(_capi.flat_comm_nccl(self._handle))

    # ---- Collective calls -----------------------------------------------------------------------

    def all_reduce(self, x: Any, out: Any = None, op: str = "sum", stream: Any = None) -> Any:
        """Collective. out[i] = op over ranks of x[i], operands taken in rank order; returns out.

        x, out: arrays of NumPy, PyTorch, CuPy or JAX, or anything with __array_interface__,
            __cuda_array_interface__,
            __dlpack__ or a writable buffer: of the communicator's device, C-contiguous, of one
                shape and dtype. out=None
            makes a new array of x's library; out=x is in place. JAX's arrays cannot be out.
        op: "sum", "prod", "max", "min" or "avg".
        stream: on GPUs a cudaStream_t, or a stream of PyTorch, CuPy or CUDA Python; None is the
            current stream of x's library. The call enqueues and returns: x and out must live, and
            out be left alone, until the stream is there.

        What is wrong with an argument is raised before anything is sent: the call may be
            repeated."""
        return _all_reduce(self._handle, x, out, op, stream)

    def barrier(self, stream: Any = None) -> None:
        """Collective. On GPUs it is enqueued on the stream (None: the current one of PyTorch or
        CuPy): what follows there runs after everything enqueued before it on every rank. On the CPU
        it waits for every rank."""
        number = 0
        if self._device != _capi.SYMM_CPU:
            number = _arrays.stream_number(stream, None, self._device)
        elif stream is not None:
            raise InvalidArgumentError(
                f"barrier: stream {stream!r}, and the communicator works on the CPU, which has none"
            )
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
        """Collective. One communicator for each color >= 0, ranked by key, then by rank here; None
        for color None.

        Options are those of Comm; what is left out is this communicator's. The new one owes nothing
        to this one."""
        with self._together(lambda: _capi.flat_comm_split(self._handle, -2, 0, *_options("split"))):
            arguments = (
                _capi.SYMM_NO_COLOR if color is None else _color(color),
                _int32(key, "split", "key"),
                *_options(
                    "split",
                    name,
                    timeout,
                    wait_timeout,
                    scratch_bytes,
                    share_gpu,
                    nccl,
                    strict,
                    sole,
                    nccl_path,
                ),
            )
        with self._blaming():
            handle = _capi.flat_comm_split(self._handle, *arguments)
        if handle is None:
            return None
        comm = Comm.__new__(Comm)
        comm._adopt(handle)
        return comm

    def window(self, shape: Any, dtype: Any = "float32", *, nccl: bool = False) -> Window:
        """Collective. Zeroed memory for an array of that shape (or number of elements) on every
        rank, seen by all.

        dtype: a name ("bfloat16"), or a dtype of NumPy, ml_dtypes or PyTorch. The bytes must be
            equal on every rank.
        nccl: make it an NCCL window as well."""
        with self._together(lambda: _capi.flat_window_alloc(self._handle, 2**64 - 1, 0)):
            extents, count = count_of(shape, "window")
            code = _dtypes.parse(dtype, "window")
        with self._blaming():
            handle = _capi.flat_window_alloc(
                self._handle, count * _dtypes.SIZES[code], _capi.SYMM_WINDOW_NCCL if nccl else 0
            )
        return make_window(self, handle, extents, code, None)

    def register(
        self, tensor: Any, *, nccl: bool = False, fd: int | None = None, fd_offset: int = 0
    ) -> Window:
        """Collective. A window over the memory of an array of each rank's, which the window then
        keeps alive here.

        The memory must live until every rank is done with the window: close it, barrier(), then
            drop the array. Memory of
        the CPU must be shared: of a symm window, or what the file descriptor `fd` has from
            fd_offset on."""
        with self._together(lambda: _capi.flat_window_register(self._handle, 0, 1, 0, 0, 0)):
            address, extents, code, device, read_only, contiguous = _capi.look(
                tensor, "register", "tensor"
            )
            if device != self._device and not (device == _arrays.UNKNOWN_GPU and self._device >= 0):
                raise InvalidArgumentError(
                    f"register: tensor is not on the communicator's device, {self.device}"
                )
            if read_only:
                raise InvalidArgumentError("register: tensor is read-only")
            if not contiguous:
                raise InvalidArgumentError("register: tensor is not contiguous in C order")
            count = count_of(extents, "register")[1]
            descriptor = 0 if fd is None else _int32(fd, "register", "fd")
            offset = operator.index(fd_offset)
            if offset < 0:
                raise InvalidArgumentError(f"register: fd_offset {offset}")
        flags = (_capi.SYMM_WINDOW_NCCL if nccl else 0) | (
            0 if fd is None else _capi.SYMM_WINDOW_FD
        )
        with self._blaming():
            handle = _capi.flat_window_register(
                self._handle, address, count * _dtypes.SIZES[code], flags, descriptor, offset
            )
        return make_window(self, handle, extents, code, tensor)

    # ---- Failures and the end -------------------------------------------------------------------

    def check(self) -> None:
        """Raises the error that ended this communicator, if any. Does not wait: of enqueued work it
        knows once that ran."""
        with self._blaming():
            _capi.flat_comm_check(self._handle)

    def abort(self) -> None:
        """Ends every wait of this communicator on every rank, now and later, with AbortedError.
        From any thread."""
        _capi.symm_comm_abort(self._handle)

    def close(self) -> None:
        """Gives the handle back; again does nothing. Never waits: a call of another thread that is
        under way goes on, and windows stay. This rank stays a member until those are gone."""
        self._handle = None

    @contextlib.contextmanager
    def _together(self, refuse: Any) -> Iterator[None]:
        """Around what prepares a collective set-up: where that fails, the other ranks are told, and
        do not wait."""
        try:
            yield
        except Exception:
            with contextlib.suppress(SymmError):
                refuse()
            raise

    @contextlib.contextmanager
    def _blaming(self) -> Iterator[None]:
        """Adds the rank to blame to errors that end the communicator."""
        handle = self._handle
        try:
            yield
        except SymmError as error:
            if (
                handle is not None
                and error.rank is None
                and not isinstance(error, InvalidArgumentError)
            ):
                rank = _capi.flat_comm_failed_rank(handle)
                error.rank = rank if rank >= 0 else None
            raise

    def __enter__(self) -> Comm:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("a symm.Comm belongs to its process, and cannot be pickled or copied")


def _color(color: Any) -> int:
    number = _int32(color, "split", "color")
    if number < 0:
        raise InvalidArgumentError(f"split: color {number}; 0 and up, or None to join no group")
    return number
