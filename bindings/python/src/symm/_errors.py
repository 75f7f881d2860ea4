"""The exceptions: one class for each status of symm.h, each also one of Python's own."""

from __future__ import annotations

import builtins
from typing import ClassVar

from . import _capi


class SymmError(RuntimeError):
    """A call of symm failed: its text says which call and argument, on which rank, and what to
    do."""

    status: int
    #: The rank to blame, where that is known.
    rank: int | None
    _status: ClassVar[int] = 0

    def __init__(
        self, message: str = "", status: int | None = None, rank: int | None = None
    ) -> None:
        super().__init__(message)
        self.status = self._status if status is None else status
        self.rank = rank

    @property
    def status_name(self) -> str:
        """As in symm.h: "SYMM_TIMEOUT" and so on."""
        return _capi.symm_status_name(self.status)

    def __str__(self) -> str:
        # Without this, OSError's own would stand in for it in some subclasses.
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.status, self.rank)


class InvalidArgumentError(SymmError, ValueError):
    """This rank's call is wrong, or, in collective set-up, another rank's."""

    _status = _capi.SYMM_INVALID_ARGUMENT


class OutOfMemoryError(SymmError, MemoryError):
    """Host or device memory, or descriptors for it, ran out."""

    _status = _capi.SYMM_OUT_OF_MEMORY


class UnsupportedError(SymmError, NotImplementedError):
    """Not with this device, driver, build or version of the library."""

    _status = _capi.SYMM_UNSUPPORTED


class SystemCallError(SymmError, OSError):
    """A system call failed: sockets, files, memory maps."""

    _status = _capi.SYMM_SYSTEM


class CudaError(SymmError):
    """A call of the CUDA driver failed."""

    _status = _capi.SYMM_CUDA


class NcclError(SymmError):
    """A call of NCCL failed."""

    _status = _capi.SYMM_NCCL


class TimeoutError(SymmError, builtins.TimeoutError):
    """Some ranks did not arrive before the deadline."""

    _status = _capi.SYMM_TIMEOUT


class PeerError(SymmError, ConnectionError):
    """A rank died, or left while it was still needed."""

    _status = _capi.SYMM_PEER


class MismatchError(SymmError):
    """The ranks called different things."""

    _status = _capi.SYMM_MISMATCH


class AbortedError(SymmError):
    """Some rank called Comm.abort()."""

    _status = _capi.SYMM_ABORTED


class InternalError(SymmError):
    """A bug of symm."""

    _status = _capi.SYMM_INTERNAL


_classes = {
    kind._status: kind
    for kind in (
        InvalidArgumentError,
        OutOfMemoryError,
        UnsupportedError,
        SystemCallError,
        CudaError,
        NcclError,
        TimeoutError,
        PeerError,
        MismatchError,
        AbortedError,
        InternalError,
    )
}


def make(status: int, message: str, rank: int) -> SymmError:
    """The exception for a status; a negative rank is unknown."""
    return _classes.get(status, SymmError)(message, status, rank if rank >= 0 else None)
