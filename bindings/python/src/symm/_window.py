"""Windows, and views of every rank's copy."""

from __future__ import annotations

import builtins
import ctypes
import operator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Iterator

from . import _capi, _dtypes
from ._capi import window_all_reduce as _window_all_reduce
from ._errors import InvalidArgumentError

if TYPE_CHECKING:
    from ._comm import Comm


def count_of(shape: Any, function: str) -> tuple[tuple[int, ...], int]:
    """A shape, which may be one number, as a tuple; and how many elements that is."""
    extents: tuple[int, ...]
    try:
        extents = (operator.index(shape),)
    except TypeError:
        extents = tuple(operator.index(extent) for extent in shape)
    count = 1
    for extent in extents:
        if extent < 0:
            raise InvalidArgumentError(f"{function}: shape {shape!r} has a negative extent")
        count *= extent
    if count > (1 << 63) - 1 >> 3:
        raise InvalidArgumentError(f"{function}: shape {shape!r} is more than memory can be")
    return extents, count


class View:
    """One rank's copy of a window, or a piece of it, as an array of that memory for every library.

    It, and every array made of it, keeps the memory: also after Window.close()."""

    # In this order they are dropped: the handle before the memory that it was made of.
    __slots__ = (
        "_handle",
        "_owner",
        "_address",
        "_code",
        "_device",
        "_rank",
        "_shape",
        "__weakref__",
    )

    _handle: Any
    _owner: Any
    _address: int
    _code: int
    _device: int
    _rank: int
    _shape: tuple[int, ...]

    def __init__(self) -> None:
        raise TypeError("a symm.View is made by indexing a symm.Window")

    @property
    def shape(self) -> tuple[int, ...]:
        """Its extents."""
        return self._shape

    @property
    def rank(self) -> int:
        """Whose copy it is."""
        return self._rank

    @property
    def dtype(self) -> str:
        """Of its elements: "float32", "bfloat16" and so on."""
        return _dtypes.NAMES[self._code]

    @property
    def device(self) -> str:
        """ "cpu", "cuda:0" and so on."""
        return "cpu" if self._device == _capi.SYMM_CPU else f"cuda:{self._device}"

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return count_of(self._shape, "view")[1]

    @property
    def itemsize(self) -> int:
        """The bytes of an element."""
        return _dtypes.SIZES[self._code]

    @property
    def nbytes(self) -> int:
        """Its bytes."""
        return self.size * self.itemsize

    @property
    def address(self) -> int:
        """Where this process sees it; 0 for no bytes."""
        return self._address

    def __len__(self) -> int:
        if not self._shape:
            raise TypeError("a view of no dimensions has no len()")
        return self._shape[0]

    def __repr__(self) -> str:
        what = f"shape {self._shape}, {self.dtype}, {self.device}"
        return f"<symm.View of rank {self._rank}'s copy: {what}>"

    # ---- Protocols ------------------------------------------------------------------------------

    def _interface(self, version: int) -> dict[str, Any]:
        return {
            "shape": self._shape,
            "typestr": _dtypes.TYPESTRS[self._code],
            "data": (self._address, False),
            "strides": None,
            "version": version,
        }

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if self._device != _capi.SYMM_CPU:
            raise AttributeError("__array_interface__: this memory is a GPU's")
        # Of no bytes nothing is read, but NumPy before 2.3 takes no address of 0.
        return {**self._interface(3), "data": (self._address or 256, False)}

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self._device == _capi.SYMM_CPU:
            raise AttributeError("__cuda_array_interface__: this memory is the host's")
        if self._code >= _capi.SYMM_BFLOAT16:
            raise AttributeError(f"__cuda_array_interface__ has no {self.dtype}: use __dlpack__")
        # Nothing is pending on this memory by itself, so nobody has to wait for a stream.
        return {**self._interface(3), "stream": None}

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0) if self._device == _capi.SYMM_CPU else (2, self._device)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(
                f"this memory is {self.device}'s, and symm does not copy it elsewhere"
            )
        if copy:
            raise BufferError("symm does not copy: copy the array that is made of this")
        if self._device == _capi.SYMM_CPU and stream not in (None, -1):
            raise ValueError(f"stream {stream!r}: the CPU has none")
        versioned = max_version is not None and max_version[0] >= 1
        return _capi.dlpack_export(
            self, self._address, self._shape, self._code, self._device, versioned
        )

    # ---- Arrays ---------------------------------------------------------------------------------

    def numpy(self) -> Any:
        """A NumPy array of this memory (CPU), with ml_dtypes' types where NumPy has none."""
        import numpy

        return numpy.asarray(self).view(_dtypes.numpy_dtype(self._code))

    def torch(self) -> Any:
        """A PyTorch tensor of this memory."""
        import torch

        return torch.from_dlpack(self)

    def cupy(self) -> Any:
        """A CuPy array of this memory (GPU)."""
        import cupy

        return cupy.from_dlpack(self)

    def memoryview(self) -> builtins.memoryview:
        """A memoryview of this memory (CPU), without NumPy. Of bytes where Python has no such
        type."""
        if self._device != _capi.SYMM_CPU:
            raise InvalidArgumentError("memoryview: this memory is a GPU's")
        if self.nbytes == 0:
            return builtins.memoryview(bytearray())
        memory = (ctypes.c_char * self.nbytes).from_address(self._address)
        memory._view = self  # type: ignore[attr-defined]  # the memory's owner goes where its address goes
        flat: builtins.memoryview = builtins.memoryview(memory).cast("B")
        code = {"i": "bhiq", "u": "BHIQ", "f": "  fd"}.get(_dtypes.TYPESTRS[self._code][1])
        if code is None or code[self.itemsize.bit_length() - 1] == " ":
            return flat
        shape: Any = self._shape or (1,)
        cast: Any = flat.cast
        result: builtins.memoryview = cast(code[self.itemsize.bit_length() - 1], shape)
        return result


def make_view(
    handle: Any, owner: Any, address: int, device: int, code: int, shape: tuple[int, ...], rank: int
) -> View:
    view = View.__new__(View)
    view._handle = handle
    view._owner = owner
    view._address = address
    view._code = code
    view._device = device
    view._rank = rank
    view._shape = shape
    return view


class Window:
    """Memory that every rank of a communicator sees. Made by Comm.window and Comm.register."""

    __slots__ = (
        "_handle",
        "_owner",
        "_code",
        "_comm",
        "_count",
        "_device",
        "_rank",
        "_shape",
        "_size",
        "__weakref__",
    )

    _handle: Any
    _owner: Any
    _code: int
    _comm: Any
    _count: int
    _device: int
    _rank: int
    _shape: tuple[int, ...]
    _size: int

    def __init__(self) -> None:
        raise TypeError("a symm.Window is made by Comm.window or Comm.register")

    @property
    def shape(self) -> tuple[int, ...]:
        """Of each rank's copy."""
        return self._shape

    @property
    def dtype(self) -> str:
        """Of its elements: "float32", "bfloat16" and so on."""
        return _dtypes.NAMES[self._code]

    @property
    def nbytes(self) -> int:
        """The bytes of each rank's copy."""
        return self._count * _dtypes.SIZES[self._code]

    @property
    def rank(self) -> int:
        """This rank."""
        return self._rank

    @property
    def device(self) -> str:
        """ "cpu", "cuda:0" and so on."""
        return "cpu" if self._device == _capi.SYMM_CPU else f"cuda:{self._device}"

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._handle is None

    def __repr__(self) -> str:
        state = ", closed" if self._handle is None else ""
        what = f"shape {self._shape}, {self.dtype}, {self.device}"
        return f"<symm.Window of {self._size} ranks: {what}{state}>"

    def open_handle(self) -> Any:
        """For calls that take it; not for users."""
        if self._handle is None:
            raise InvalidArgumentError("the window is closed")
        return self._handle

    # ---- Views ----------------------------------------------------------------------------------

    def __len__(self) -> int:
        """The number of ranks."""
        return self._size

    def _held(self) -> tuple[Any, Any]:
        """What keeps the memory. Another thread's close() may come at any moment: whoever uses the
        window takes this once, before."""
        # In this order: close() takes the handle away first, so that a handle has its owner here.
        owner = self._owner
        return self._handle, owner

    def _view(self, held: tuple[Any, Any], rank: int, offset: int, shape: tuple[int, ...]) -> View:
        handle, owner = held
        address = _capi.flat_window_data(handle, rank)
        if address != 0:
            address += offset * _dtypes.SIZES[self._code]
        return make_view(handle, owner, address, self._device, self._code, shape, rank)

    def __getitem__(self, rank: int) -> View:
        """That rank's copy. What this rank sees of another's writes is up to barrier()."""
        number = operator.index(rank)
        if number < 0:
            number += self._size
        if not 0 <= number < self._size:
            # Also what ends iteration.
            raise IndexError(f"rank {rank} of a window of {self._size} ranks")
        return self._view(self._held(), number, 0, self._shape)

    def __iter__(self) -> Iterator[View]:
        for rank in range(self._size):
            yield self[rank]

    @property
    def local(self) -> View:
        """This rank's own copy."""
        return self._view(self._held(), self._rank, 0, self._shape)

    def numpy(self, rank: int | None = None) -> Any:
        """A NumPy array of a rank's copy, this rank's own for None."""
        return self[self._rank if rank is None else rank].numpy()

    def torch(self, rank: int | None = None) -> Any:
        """A PyTorch tensor of a rank's copy, this rank's own for None."""
        return self[self._rank if rank is None else rank].torch()

    def cupy(self, rank: int | None = None) -> Any:
        """A CuPy array of a rank's copy, this rank's own for None."""
        return self[self._rank if rank is None else rank].cupy()

    # ---- Collective calls -----------------------------------------------------------------------

    def all_reduce(
        self,
        out: Any = None,
        op: str = "sum",
        *,
        offset: int = 0,
        count: int | None = None,
        stream: Any = None,
    ) -> Any:
        """Collective. Reduces every rank's copy, as Comm.all_reduce does arrays, one copy of the
        memory saved.

        out: where to, an array of the window's dtype and as many elements, which is returned; None
            is in place: this rank's own copy, of which a view is returned.
        offset, count: a piece of the window, in elements (of the flattened array), equal on every
            rank.
        stream: as for Comm.all_reduce; None is the current stream of out's library.

        The window may be written again once this has run on this rank's stream."""
        whole = offset == 0 and count is None
        if count is None:
            count = self._count - offset
        if offset < 0 or count < 0 or offset + count > self._count:
            raise InvalidArgumentError(
                f"Window.all_reduce: elements {offset} to {offset + count} of a window of "
                f"{self._count} elements"
            )
        held = self._held()
        result = _window_all_reduce(
            held[0], self._comm, self._rank, self._code, offset, count, out, op, stream
        )
        if result is not None:
            return result
        return self._view(held, self._rank, offset, self._shape if whole else (count,))

    # ---- The end --------------------------------------------------------------------------------

    def close(self) -> None:
        """Gives the handle back; again does nothing. Never waits. The memory stays while views of
        it are alive."""
        self._handle = None
        self._owner = None
        self._comm = None

    def __enter__(self) -> Window:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("a symm.Window belongs to its process and cannot be pickled or copied")


def make_window(comm: Comm, handle: Any, shape: tuple[int, ...], code: int, owner: Any) -> Window:
    window = Window.__new__(Window)
    window._handle = handle
    window._owner = owner
    # The communicator's own handle, so that close() there does not end this window.
    window._comm = comm._handle
    window._rank = comm._rank
    window._size = comm._size
    window._device = comm._device
    window._code = code
    window._shape = shape
    window._count = count_of(shape, "window")[1]
    return window
